"""The same drawn calls on the simulator and on a real accelerator; what differs is listed.

``python -m spec_tests.meta_tests.simulator_against --accelerator cuda --device-ids 0,0,0,0``
prints every call that comes to something else there than on the simulator with the same slots:
results, errors, warnings, gradients, and the inputs afterwards. Each is a defect of the simulator,
or of the stand-ins for the reference's primitives. PyTorch knows one accelerator a process, so
two processes draw the same calls and write down what comes of them. The exit status is 1 if any
differs.
"""
