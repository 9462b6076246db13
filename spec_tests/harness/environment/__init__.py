"""The environment of a test: target, devices, interpreter, number of examples.

Imports the simulator and ``cuda_stand_ins`` (replacements of functions that only CUDA builds
have), and no other package of the harness.
"""
