"""Tests of the state machine of wrappers."""
