"""Checks that need a GPU: ``python -m reports.gpu``."""
