"""Compares all operators of PyTorch's test database on a simulated device with the CPU.

``python -m spec_tests.meta_tests.operator_sweep`` runs every sample call of every operator that
the CPU supports, in five dtypes, with gradients, and also the in-place variant. It takes two
minutes on one core. ``--quick`` runs a few calls of each operator, as the tests do. Operator names
as arguments select operators. The exit status is 1 if a result differs from the CPU, if an
operator raises NotImplementedError without an entry in ``exceptions.toml``, or if an operator with
an entry works.
"""
