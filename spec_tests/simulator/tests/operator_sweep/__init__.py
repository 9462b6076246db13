"""Comparison of every operator in PyTorch's OpInfo database on a simulated device and on the CPU.

``python -m spec_tests.simulator.tests.operator_sweep`` runs all sample inputs of every operator
that the CPU supports, in five dtypes, with gradients. The first one runs a second time, with
column-major matrices. In-place variants run, too. The sweep takes two minutes of one core.

The gate runs ``--quick``: two samples in two dtypes, and no in-place variants. Names of operators
as arguments restrict the sweep to these operators. The exit status is 1 if a result differs from
the CPU's, or if an operator raises NotImplementedError. ``__main__.py`` lists the exceptions.
"""
