"""The environment of a test: target, devices, interpreter, number of examples.

Imports the simulator, ``cuda_stand_ins`` (replacements of functions that only CUDA builds have)
and the module ``input_files`` of the harness, and no other package of the harness.
"""
