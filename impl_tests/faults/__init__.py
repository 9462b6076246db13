"""Fault harness: faults in random calls of the public functions, each in a process of its own.

``python -m impl_tests.faults --count 1000`` injects faults, prints a table of fault kinds and
outcomes, and returns 1 if an outcome is bad. A trial is drawn from a seed: ``--seed S --count 1``
repeats it. After each fault the state of the thread, the memory of the devices and the result of
the next call are checked.

* ``errors.py``, ``trigger.py``: the exceptions to raise, and the places that raise them.
* ``nets.py``, ``calls.py``, ``transfers.py``: modules with such places, and the public functions.
* ``state.py``: the state that a call must not change.
* ``injection.py``: one call with a fault, and its verdict.
* ``exceptions.py``, ``interrupts.py``, ``memory.py``, ``threads.py``, ``blocked.py``: the kinds of
  faults. An interrupt comes at a random instant: its seed repeats the call, but not the instant.
* ``surroundings.py``: calls without a fault in threads, event loops, signal handlers, ``__del__``,
  forks, new processes and at exit.
* ``trial.py``, ``table.py``: trials in processes, and the counted verdicts.
* ``bad_input.py``, ``cases.py``, ``wrong_*.py``: every argument replaced by each wrong value.
* ``ranks/``: ranks of impl.distributed that are lost.
* ``soak.py``, ``callers.py``: steps without faults, and the growth of memory, threads, files and
  objects.
* ``wrong_versions.toml``: changes to impl that no other test finds; ``--wrong-version NAME`` runs
  the harness with one.
* ``results.py``, ``page.py``: the published results, and the page ``impl/faults.md`` of them.
"""

from pathlib import Path

#: The file with the wrong versions of impl.
WRONG_VERSIONS = Path(__file__).with_name("wrong_versions.toml")
