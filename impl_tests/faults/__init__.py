"""Fault harness: faults in calls of the public functions, each trial in a process of its own.

``python -m impl_tests.faults --count 1000`` injects faults, prints the numbers of verdicts, and
returns 1 if one is bad. A bad verdict names the options that repeat its trial; only the instant of
an interrupt differs. After each fault the state of the thread, the memory of the
devices and the result of the next call are checked.

* ``cases.py``: the functions, with valid arguments. ``calls.py``: their calls and results.
* ``kinds.py``: the kinds of faults.
* ``state.py``: the state that a call must not change. ``trial.py``: trials and their verdicts.
* ``ranks/``: ranks of impl.distributed that are lost.
"""
