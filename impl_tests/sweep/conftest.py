"""Stubs for the libraries of CUDA, which torchvision needs to be imported."""

from spec_tests.cuda_stand_ins import stub_libraries

stub_libraries.load_stubs()
