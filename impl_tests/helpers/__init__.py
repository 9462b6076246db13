"""Helpers of the tests and of the programs in ``long_checks``."""
