"""Tests of the package ``impl._replica``."""
