"""The environment of a test: target, devices, interpreter, number of examples.

Imports the simulator and the stand-ins for CUDA's primitives, and no other package of the harness.
"""
