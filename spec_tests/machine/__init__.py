"""The machine of a run. README.md has its modules, and the way of a failure.

Its modules import the simulator and ``cuda_stand_ins``.
"""
