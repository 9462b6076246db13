"""Tests of clauses that comm's functions and the autograd Functions have in common."""
