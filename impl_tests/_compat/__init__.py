"""Tests of the package ``impl._compat``."""
