"""Tests of oracle."""
