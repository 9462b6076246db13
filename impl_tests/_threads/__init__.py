"""Tests of the package ``impl._threads``."""
