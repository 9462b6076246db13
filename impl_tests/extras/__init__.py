"""Tests of the modules in ``impl.extras``."""
