"""The environment of a test: target, devices, interpreter, number of examples.

It also has the processes in which tests run programs (``subprocesses``, ``fork_server``),
functions of several ranks (``rank_pool``) and calls that may end the process (``probes``).

Its modules import no other package of the harness. They import the module ``input_files``, the
simulator, and ``cuda_stand_ins`` (replacements of functions that only CUDA builds have).
"""
