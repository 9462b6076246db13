"""Comparison of the simulator with a real accelerator, on the same randomly drawn calls.

``python -m reports.gpu_day.comparison --accelerator cuda --device-ids 0,0,0,0`` prints the first
20 calls whose outcomes differ between the accelerator and the simulator: the result, the error,
the warnings, the gradients, or the inputs after the call. It also prints the number of such calls.
Each difference is a bug of the simulator or of the stand-ins for the reference's primitives.
PyTorch supports one accelerator in a process, so two processes draw the same calls and record the
outcomes. The exit status is 1 if any outcome differs, or if there are no calls.
"""
