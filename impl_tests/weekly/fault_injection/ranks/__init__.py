"""Ranks of impl.distributed that exit, are killed or stopped, raise errors, or stay away.

* ``lost_ranks.py``: the ways to lose ranks, the places where they are lost, and random cases.
* ``rank.py``: one rank, which trains until its fault. ``processes.py``: all ranks of a case.
* ``verdicts.py``: the verdicts on the ends of the ranks.
"""
