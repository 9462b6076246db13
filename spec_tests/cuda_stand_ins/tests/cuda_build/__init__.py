"""Tests that run the primitives of PyPI's CUDA build without a GPU: ``tox -e cuda-build``."""
