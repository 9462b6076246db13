"""Settings that a call changes and restores."""

from collections.abc import Callable
from typing import Any, TypeVar

_T = TypeVar("_T")
_R = TypeVar("_R")


def call_with_setting(
    set_value: Callable[[_T], object],
    value: _T,
    before: _T,
    function: Callable[..., _R],
    *args: Any,
    **kwargs: Any,
) -> _R:
    """Call ``function(*args, **kwargs)`` between ``set_value(value)`` and ``set_value(before)``.

    Return the result of the function. ``before`` is restored even after an interrupt. A ``with``
    block would not always restore it: an interrupt at the start of ``__exit__`` skips the rest of
    this method.
    """
    try:
        set_value(value)
        return function(*args, **kwargs)
    finally:
        try:
            set_value(before)
        except BaseException:  # An interrupt may have stopped `set_value`.
            set_value(before)
            raise
