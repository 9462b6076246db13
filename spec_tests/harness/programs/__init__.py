"""Programs that repeat failures.

The program of a failed test has the body of the test and the drawn values. The other programs are
in plain PyTorch, and show a fault of a back end without the target.

A test that fails on a back end runs again with a record of the operators that it calls. Each
program calls one of them with new tensors of the same shapes, strides, dtypes and devices. It is
shown only if it raises the error of the test, ends its process as the test does, or computes
another value than the same operator on the CPU.

Of the other packages of the harness, the modules import only ``environment`` and ``conformance``.
"""
