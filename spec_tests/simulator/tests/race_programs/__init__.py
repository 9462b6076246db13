"""Small programs with and without a race, according to the documentation of CUDA and PyTorch.

A program is a function with one argument, ``correct``. With False the program has a race. With
True one call or one operand differs, and the program has no race.
"""

from . import copies, events, memory, views
from .program import PROGRAMS, Program

__all__ = ["PROGRAMS", "Program", "copies", "events", "memory", "views"]
