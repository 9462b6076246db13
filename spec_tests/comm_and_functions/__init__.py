"""Tests that run on a function of comm and on the autograd Function with the same behaviour."""
