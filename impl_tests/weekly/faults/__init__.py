"""Fault harness: faults in calls of the public functions, each trial in a process of its own.

``python -m impl_tests.weekly.faults --count 1000`` injects faults, prints the numbers of verdicts,
and returns 1 if one is bad. A bad verdict names the options that repeat its trial; only the
instant of an interrupt differs.

* ``kinds.py``: the kinds of faults. ``impl_tests/helpers/cases.py`` has the calls.
* ``__main__.py``: the trials. ``leftovers.py``: the state and the resources that each compares.
* ``findings.py``: the verdicts of both programs.
* ``ranks/``: ranks of impl.distributed that are lost.
"""
