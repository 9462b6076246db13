"""The environment of a test: target, devices, interpreter, number of examples.

Its modules import no other package of the harness. They import the module ``input_files``, the
simulator, and ``cuda_stand_ins`` (replacements of functions that only CUDA builds have).
"""
