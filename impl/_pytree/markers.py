"""What a caller wraps round an argument that is not to be split like the others.

A marker may stand anywhere in a nested argument and may hold a nested value itself; it reaches
every tensor below it. Of two markers round one tensor the inner one counts. A module never sees
them: it receives what they hold.
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["SplitAlong", "Whole"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Whole(Generic[T]):
    """An argument that every replica receives whole.

    Gradients that reach the replicas' copies are summed on the device of the original.

    Args:
        value: A tensor, or any nested value; its tensors are copied, not split. A replica on
            the device of a tensor shares that tensor's memory, every other one has a copy.
    """

    value: T


@dataclass(frozen=True, slots=True, eq=False)
class SplitAlong(Generic[T]):
    """An argument that is split along a dimension of its own.

    Args:
        value: A tensor, or any nested value whose tensors are all split along ``dim``.
        dim: The dimension to split. Negative values count from the last one.
    """

    value: T
    dim: int
