"""Tests of the package ``impl._device``."""
