"""Ranks of impl.distributed that exit, are killed or stopped, raise errors, or stay away.

* ``cases.py``: the ways in which ranks are lost, the places, and random cases.
* ``faults.py``, ``training.py``, ``program.py``: one rank, which trains until its fault.
* ``processes.py``: all ranks of a case, and how they end.
* ``verdicts.py``, ``trials.py``: verdicts on the ends, and many cases.
"""
