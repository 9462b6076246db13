"""Markers of arguments that are not split along ``dim``.

A marker may be anywhere in a nested argument, and may contain a nested value. It applies to every
tensor in this value. If several markers contain a tensor, the innermost one applies. Modules
receive the values of the markers, never the markers.
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

from ._arguments import as_int

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Whole(Generic[T]):
    """An argument that every replica receives whole.

    The gradients of all copies are summed on the device of the original.

    Args:
        value: A tensor, or any nested value. Its tensors are copied, not split. The first replica
            on the device of a tensor shares the memory of the tensor; every other replica has a
            copy. Tensors of all sparse layouts are allowed if they do not require grad.
    """

    value: T


@dataclass(frozen=True, slots=True, eq=False)
class SplitAlong(Generic[T]):
    """An argument that is split along another dimension than the other arguments.

    Args:
        value: A tensor, or any nested value whose tensors are all split along ``dim``.
        dim: The dimension to split. Negative values count from the last one.

    Raises:
        TypeError: ``dim`` is not an int.
    """

    value: T
    dim: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "dim", as_int("dim", self.dim))
