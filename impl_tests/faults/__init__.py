"""Fault harness: faults in random calls of the public functions, each in a process of its own.

``python -m impl_tests.faults --count 1000`` injects faults, prints the numbers of verdicts, and
returns 1 if one is bad. A trial is drawn from a seed: ``--seed S --count 1`` repeats it, but not
the exact instant of an interrupt. After each fault the state of the thread, the memory of the
devices and the result of the next call are checked.

* ``calls.py``: calls of the public functions, which the suite's strategies describe. The suite's
  oracle computes the expected results.
* ``kinds.py``: the kinds of faults. ``state.py``: the state that a call must not change.
* ``trial.py``, ``verdicts.py``: trials, each in its own process, and their verdicts.
* ``bad_input.py``, ``cases.py``, ``wrong_*.py``: every argument replaced by each wrong value.
* ``ranks/``: ranks of impl.distributed that are lost.
"""
