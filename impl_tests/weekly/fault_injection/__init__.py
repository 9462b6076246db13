"""Fault harness: faults in calls of the public functions.

Each trial runs in a process of its own.

``python -m impl_tests.weekly.fault_injection --count 1000`` injects faults, prints the numbers of
verdicts, and returns 1 if one is bad. A bad verdict names the options that repeat its trial; only
the instant of an interrupt differs.

* ``call_trials.py``: faults in calls. ``faults.py``: their kinds. ``impl_tests/helpers/cases.py``
  has the calls. ``state_before.py``: the state and the resources that each trial compares.
* ``findings.py``: the verdicts. ``__main__.py``: draws and runs the trials.
"""
