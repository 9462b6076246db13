"""Hypothesis strategies that draw calls and arguments which the documentation allows."""
