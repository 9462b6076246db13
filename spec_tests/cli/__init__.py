"""The command ``parallel-conformance``."""
