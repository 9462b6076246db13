"""Tests of the package ``impl._pytree``."""
