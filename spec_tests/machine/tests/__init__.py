"""Tests of the machine and of the checks."""
