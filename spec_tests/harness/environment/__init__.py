"""What a test runs on: the target, the devices, the interpreter, how many examples.

Imports the simulator and the stand-ins for CUDA's primitives, and no other package of the harness.
"""
