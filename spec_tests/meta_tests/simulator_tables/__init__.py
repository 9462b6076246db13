"""Operators, functions and layers that are compared on the simulated accelerator and the CPU."""

from .functional import FUNCTIONAL
from .inputs import OperatorCase
from .linear_algebra import LINEAR_ALGEBRA
from .pointwise import POINTWISE
from .reductions import REDUCTIONS
from .shapes import SHAPES

__all__ = ["OPERATORS"]

OPERATORS: dict[str, OperatorCase] = POINTWISE | REDUCTIONS | LINEAR_ALGEBRA | SHAPES | FUNCTIONAL
