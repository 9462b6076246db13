"""Tests of the modules in ``impl.extras`` and ``impl._kept``."""
