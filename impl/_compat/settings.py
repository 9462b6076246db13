"""Calls of functions while a setting, such as the current device, has another value."""

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

    An interrupt at any instant restores ``before``. A ``with`` block would not: an interrupt at
    the start of ``__exit__`` ends it.
    """
    try:
        set_value(value)
        return function(*args, **kwargs)
    finally:
        try:
            set_value(before)
        except KeyboardInterrupt:  # It may come before `set_value` has restored the value.
            set_value(before)
            raise
