"""Fault harness: faults in random calls of the public functions, each in a process of its own.

``python -m impl_tests.faults --count 1000`` injects faults, prints a table of fault kinds and
outcomes, and returns 1 if an outcome is bad. A trial is drawn from a seed: ``--seed S --count 1``
repeats it. After each fault the state of the thread, the memory of the devices and the result of
the next call are checked.

* ``errors.py``, ``trigger.py``: the exceptions to raise, and the places that raise them.
* ``draws.py``, ``calls.py``: calls of the public functions, which the suite's strategies describe.
  The suite's oracle computes the expected results. ``nets.py``: modules with these places.
* ``state.py``: the state that a call must not change.
* ``injection.py``: one call with a fault, the checks after it, and the verdict.
* ``exceptions.py``, ``interrupts.py``, ``memory.py``, ``threads.py``, ``blocked.py``: the kinds of
  faults. A seed repeats the call that is interrupted, but not the exact instant.
* ``trial.py``, ``table.py``: trials, each in its own process, and the table of their verdicts.
* ``bad_input.py``, ``cases.py``, ``wrong_*.py``: every argument replaced by each wrong value.
* ``ranks/``: ranks of impl.distributed that are lost.
"""
