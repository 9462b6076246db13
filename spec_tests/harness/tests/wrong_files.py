"""Files with one wrong value, and the errors of the functions that read them."""

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spec_tests.harness.input_files import RefusedError

__all__ = [
    "error_text",
    "is_short_line",
    "places",
    "replace",
    "to_text",
    "with_one_wrong_value",
]

#: Values that are wrong in place of any text, number, list or table.
_WRONG_VALUES: tuple[Any, ...] = (True, "text", [{}], {"a\nb": [1]}, [["a"]])
Place = tuple[str | int, ...]


def places(value: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Yield each value that is nested in ``value``, after its place, a tuple of keys."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, each in items:
        yield (*place, key), each
        if isinstance(each, (dict, list)):
            yield from places(each, (*place, key))


def replace(value: Any, place: Place, new: Any) -> Any:
    """Return a copy of ``value`` with ``new`` in one place."""
    value = copy.deepcopy(value)
    inner = value
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = new
    return value


def with_one_wrong_value(value: Any) -> Iterator[tuple[tuple[Place, Any], Any]]:
    """Yield copies of ``value`` with a value of a wrong type, after the place and this value."""
    for place, old in places(value):
        for wrong in _WRONG_VALUES:
            if type(wrong) is not type(old) or isinstance(wrong, list):
                yield (place, wrong), replace(value, place, wrong)


def to_text(value: Any, *, toml: bool) -> str:
    """Return a table as TOML or JSON."""
    if not toml:
        return json.dumps(value, default=str)
    return "\n".join(f"{key} = {_format_toml(each)}" for key, each in value.items())


def _format_toml(value: Any) -> str:
    if isinstance(value, dict):
        pairs = (f"{json.dumps(key)} = {_format_toml(each)}" for key, each in value.items())
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_format_toml, value)) + "]"
    return "inf" if value == float("inf") else json.dumps(value)


def error_text(read: Callable[[Path], object], path: Path) -> str:
    """Return the text of the error that ``read`` raises; an empty text if it accepts the file."""
    try:
        read(path)
    except (RefusedError, pytest.UsageError) as error:
        return str(error)
    return ""


def is_short_line(text: str) -> bool:
    """Return whether a text is one line without control characters and not long."""
    return text.isprintable() and len(text) < 600
