"""Tests of cuda_stand_ins."""
