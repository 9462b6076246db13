"""Errors that name the argument that caused them. This module imports no other one of impl."""

import operator
from collections.abc import Iterable
from numbers import Integral
from typing import Any, TypeVar

import torch
from torch import Tensor

_T = TypeVar("_T")


class _Note(str):
    """A note that a block has added."""

    __slots__ = ()


class argument:  # noqa: N801 - a context manager, used like contextlib.suppress
    """A context manager that adds the names of arguments to the errors of a ``with`` block.

    The names are in a note. The type and the text of the error do not change. Of nested blocks,
    the outermost one names the arguments. An OutOfMemoryError of PyTorch gets no note.

    Args:
        names: One or more names.
    """

    __slots__ = ("_names",)

    def __init__(self, names: str) -> None:
        self._names = names

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> None:
        if isinstance(error, Exception) and not isinstance(error, torch.OutOfMemoryError):
            notes = getattr(error, "__notes__", [])
            notes[:] = [note for note in notes if not isinstance(note, _Note)]
            error.add_note(_Note(f"Argument: {self._names}"))


def check_tensor(name: str, value: object) -> None:
    """Raise TypeError if ``value`` is not a tensor."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a tensor, not {type(value).__name__}")


def as_list(name: str, values: Iterable[_T]) -> list[_T]:
    """Return a list of ``values``. Raise TypeError if ``values`` is no iterable."""
    if type(values) in (list, tuple):  # Most are, and a note is not needed for them.
        return list(values)
    with argument(name):
        return list(values)


def as_tensors(name: str, values: Iterable[Tensor]) -> list[Tensor]:
    """Return a list of ``values``. Raise TypeError if one of them is not a tensor."""
    tensors = as_list(name, values)
    for index, tensor in enumerate(tensors):
        if not isinstance(tensor, Tensor):
            check_tensor(f"{name}[{index}]", tensor)
    return tensors


def as_bool(name: str, value: Any) -> bool:
    """Return the truth of ``value``. Arrays and tensors of several elements have none."""
    if type(value) is bool:
        return value
    with argument(name):
        return bool(value)


def as_int(name: str, value: Any) -> int:
    """Return ``value`` as an int.

    Raise TypeError unless it is an integer of Python or NumPy, or a 0-dim tensor of integers.
    """
    kind = type(value)
    if kind is int:
        return int(value)
    with argument(name):
        is_scalar = issubclass(kind, Tensor) and value.dim() == 0 and value.dtype is not torch.bool
        if issubclass(kind, bool) or not (is_scalar or issubclass(kind, Integral)):
            raise TypeError(f"{name} must be an int, not {kind.__name__}")
        return operator.index(value)


def as_buffer_size(size: Any) -> int:
    """Return ``size`` as an int. Raise TypeError if it is not an integer from 0."""
    kind = type(size)
    with argument("buffer_size"):
        if not hasattr(kind, "__index__"):
            raise TypeError(f"buffer_size must be an integer from 0, not {kind.__name__}")
        number = operator.index(size)
        if number < 0:
            raise TypeError(f"buffer_size must be an integer from 0, not {number}")
        return number
