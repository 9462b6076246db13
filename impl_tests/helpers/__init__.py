"""Helpers of the tests and of the programs in ``weekly``, ``consumers`` and ``models``."""
