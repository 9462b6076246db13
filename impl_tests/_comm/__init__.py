"""Tests of the package ``impl._comm``."""
