"""Tables of operators and modules on which the simulator is compared with the CPU."""

from .functional import FUNCTIONAL
from .inputs import OperatorCase
from .linear_algebra import LINEAR_ALGEBRA
from .pointwise import POINTWISE
from .reductions import REDUCTIONS
from .shapes import SHAPES

__all__ = ["OPERATORS"]

OPERATORS: dict[str, OperatorCase] = POINTWISE | REDUCTIONS | LINEAR_ALGEBRA | SHAPES | FUNCTIONAL
