"""Every operator of PyTorch's own database of tests, on a simulated device and on the CPU.

``python -m spec_tests.meta_tests.operator_sweep`` makes every call, in five types, of every
operator that the CPU supports, with gradients, and in place where there is such a variant (two
minutes of one core); ``--quick`` makes a few calls each, as the tests do; names take these
operators alone. The exit status is 1 if a call differs from the CPU's, or is refused and not
listed in ``exceptions.toml``, or is listed and works.
"""
