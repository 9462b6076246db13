"""Tests of the package ``impl.distributed``."""
