"""Comparison of the simulator with a real accelerator, on the same randomly drawn calls.

``python -m spec_tests.meta_tests.simulator_comparison --accelerator cuda --device-ids 0,0,0,0``
prints every call whose outcome differs between the accelerator and the simulator: the result, the
error, the warnings, the gradients, or the inputs after the call. Each difference is a bug of the
simulator or of the stand-ins for the reference's primitives. PyTorch supports one accelerator in a
process, so two processes draw the same calls and record the outcomes. The exit status is 1 if any
outcome differs.
"""
