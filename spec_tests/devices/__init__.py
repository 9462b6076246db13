"""Clauses about the devices themselves: what programs over several devices rely on.

The tests call PyTorch only; no target takes part. `spec_tests.machine.capabilities` runs them
with few examples for ``doctor`` and for the header of a run.
"""
