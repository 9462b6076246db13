"""Shapes of the values in TOML and JSON files: types, keys and limits.

A *shape* describes a value of a file:

* ``str``, ``int``, ``bool`` or ``date``: a value of this type,
* None: null,
* ``Number(1, 9)``: a number from 1 to 9,
* ``Line(9)``: a text of at most 9 characters without control characters,
* ``[shape]``: a list whose items have this shape,
* ``{"a": shape, "b?": shape}``: a table with the key ``a``, which may have the key ``b``; other
  keys are not checked,
* ``{...: shape}``: a table whose values all have this shape,
* ``(shape, shape)``: a value with one of these shapes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from typing import Any

__all__ = ["Line", "Number", "find_fault"]

_NAMES = {str: "a text", int: "an integer", bool: "true or false", date: "a date", None: "null"}


@dataclass(frozen=True)
class Number:
    """The shape of numbers from ``low`` to ``high``."""

    low: float
    high: float


@dataclass(frozen=True)
class Line:
    """The shape of texts of at most ``max_length`` characters without control characters."""

    max_length: int


def find_fault(value: Any, shape: Any) -> str | None:
    """Return the first fault of a value as a text, such as ``runs.0: a table was expected``."""
    return next(_find_faults(value, shape, ""), None)


def _find_faults(value: Any, shape: Any, place: str) -> Iterator[str]:
    """Yield the faults of a value. ``place`` is empty, or the path of the value and a colon."""
    if isinstance(shape, dict) and isinstance(value, dict):
        yield from _find_faults_in_table(value, shape, place)
    elif isinstance(shape, list) and isinstance(value, list):
        for index, item in enumerate(value):
            yield from _find_faults(item, shape[0], _join(place, index))
    elif not _is_valid(value, shape):
        yield f"{place}{_describe(shape)} was expected"


def _find_faults_in_table(
    table: dict[str, Any], shape: dict[Any, Any], place: str
) -> Iterator[str]:
    for name, inner in shape.items():
        if name is ...:
            for key, value in table.items():
                yield from _find_faults(value, inner, _join(place, key))
            continue
        key = name.removesuffix("?")
        if key in table:
            yield from _find_faults(table[key], inner, _join(place, key))
        elif key == name:
            yield f"{place}the key {key!r} is missing"


def _join(place: str, key: object) -> str:
    return f"{place.removesuffix(': ')}.{key}: " if place else f"{key}: "


def _is_valid(value: Any, shape: Any) -> bool:
    if isinstance(shape, tuple):
        return any(find_fault(value, each) is None for each in shape)
    if isinstance(shape, Number):
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return is_number and shape.low <= value <= shape.high
    if isinstance(shape, Line):
        is_short = isinstance(value, str) and len(value) <= shape.max_length
        return is_short and value.isprintable()
    if shape is int:
        return type(value) is int
    return value is None if shape is None else isinstance(shape, type) and isinstance(value, shape)


def _describe(shape: Any) -> str:
    if isinstance(shape, tuple):
        return " or ".join(map(_describe, shape))
    if isinstance(shape, Number):
        return f"a number from {shape.low:g} to {shape.high:g}"
    if isinstance(shape, Line):
        return f"a text of one line with at most {shape.max_length} characters"
    if isinstance(shape, list):
        return "a list"
    return "a table" if isinstance(shape, dict) else _NAMES[shape]
