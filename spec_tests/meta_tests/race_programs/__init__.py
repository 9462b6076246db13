"""Small programs whose ordering CUDA's documentation decides: each wrong one beside a right one.

A row is a function of one argument. With False it is a wrong program; with True the same program
with the one call, or the one place, that mends it.
"""

from . import copies, events, gradients, memory, parts, threads
from .rows import ROWS, Row

__all__ = ["ROWS", "Row", "copies", "events", "gradients", "memory", "parts", "threads"]
