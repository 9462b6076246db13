"""Errors that name the argument that caused them.

This module imports torch only.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from numbers import Integral
from types import TracebackType

from torch import Tensor


class argument:  # noqa: N801 - a context manager, used like contextlib.suppress
    """A context manager that adds the names of arguments to the errors of a ``with`` block.

    The names are in a note of the error. Its type and text do not change.

    Args:
        names: One or more names, or a function that returns them.
    """

    __slots__ = ("_names",)

    def __init__(self, names: str | Callable[[], str]) -> None:
        self._names = names

    def __enter__(self) -> None:
        return

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        _: TracebackType | None,
    ) -> None:
        if error is not None and kind is not None and issubclass(kind, Exception):
            with suppress(Exception):  # A class of exceptions may refuse notes.
                names = self._names if isinstance(self._names, str) else self._names()
                error.add_note(f"Argument: {names}")


def check_tensor(name: str, value: object) -> None:
    """Raise TypeError if ``value`` is not a tensor."""
    if not is_tensor(value):
        raise TypeError(f"{name} must be a tensor, not {type(value).__name__}")


def as_tensors(name: str, values: Iterable[Tensor]) -> list[Tensor]:
    """Return a list of ``values``. Raise TypeError if one of them is not a tensor."""
    with argument(name):
        tensors = list(values)
    for index, tensor in enumerate(tensors):
        if not is_tensor(tensor):
            check_tensor(f"{name}[{index}]", tensor)
    return tensors


def as_int(name: str, value: object) -> int:
    """Return ``value`` as an int. Raise TypeError if it is no integer of Python or NumPy."""
    if type(value) is int:
        return value
    if issubclass(type(value), bool) or not issubclass(type(value), Integral):
        raise TypeError(f"{name} must be an int, not {type(value).__name__}")
    return int(value)  # type: ignore[call-overload,no-any-return] # mypy ignores the check


def is_tensor(value: object) -> bool:
    """Return whether the class of ``value`` is Tensor or a subclass.

    Unlike ``isinstance``, this is false for a mock of a tensor, for which PyTorch crashes.
    """
    return issubclass(type(value), Tensor)
