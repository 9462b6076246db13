"""Tests of cpp_front_end."""
