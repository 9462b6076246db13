"""Read TOML and JSON files that users supply: registers, target maps, verdicts and benchmarks.

A file that is not valid raises `RefusedError`. Its text is one line that names the file and, if a
value has another shape, its key. A *shape* describes a value:

* a class, such as ``str``: a value of this class; ``float``: any number,
* ``[shape]``: a list whose items have this shape,
* ``{"a": shape, "b?": shape}``: a table with the key ``a``, which may have the key ``b``; other
  keys are not checked,
* ``{...: shape}``: a table whose values all have this shape,
* ``(shape, shape)``: a value with one of these shapes,
* any other object: a value that is equal to it.
"""

import json
import textwrap
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

_Kind = TypeVar("_Kind")

_NAMES: dict[Any, str] = {
    str: "a text",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "a table",
    None: "null",
}


class RefusedError(ValueError):
    """The error of a file or folder that is not valid. The text is one line."""


@contextmanager
def usage_errors() -> Iterator[None]:
    """Turn a `RefusedError` of the block into a UsageError. pytest prints only its text."""
    try:
        yield
    except RefusedError as error:
        raise pytest.UsageError(str(error)) from None


def refuse(source: object, problem: object) -> RefusedError:
    """Return the error with the text ``source: problem``, in one line."""
    return RefusedError(f"{source}: {shorten(str(problem))}")


def shorten(text: str) -> str:
    """Return a text as one line. Of a longer text, return at most 200 characters."""
    return textwrap.shorten(text, 200, placeholder=" …")


def read_text(path: Path) -> str:
    """Return the text of a file in UTF-8.

    Raises:
        RefusedError: There is no such file, or it cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RefusedError(f"{path} cannot be read: {reason}") from None


def read_toml(path: Path, shape: Any) -> dict[str, Any]:
    """Return the tables of a TOML file.

    Raises:
        RefusedError: The file cannot be read, is not TOML, or has another shape.
    """
    tables = parse_toml(read_text(path), str(path))
    check(tables, shape, path)
    return tables


def read_json(path: Path, shape: Any) -> Any:
    """Return the value of a JSON file.

    Raises:
        RefusedError: The file cannot be read, is not JSON, or has another shape.
    """
    value = parse_json(read_text(path), str(path))
    check(value, shape, path)
    return value


def parse_toml(text: str, source: str) -> dict[str, Any]:
    """Return the tables of a TOML text from the file ``source``.

    Raises:
        RefusedError: The text is not TOML.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise refuse(f"{source} is not TOML", error) from None


def parse_json(text: str, source: str) -> Any:
    """Return the value of a JSON text from the file ``source``.

    Raises:
        RefusedError: The text is not JSON.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise refuse(f"{source} is not JSON", error) from None


def convert(value: Any, kind: type[_Kind], source: object) -> _Kind:
    """Return a value of the file ``source`` as an object of a class with annotations.

    Raises:
        RefusedError: The value has another shape. The text names the key.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise refuse(source, error) from None


def check(value: Any, shape: Any, source: object) -> None:
    """Raise RefusedError if a value of the file ``source`` has another shape."""
    for problem in _problems(value, shape, ""):
        raise refuse(source, problem)


def _problems(value: Any, shape: Any, place: str) -> Iterator[str]:
    """Yield the problems of a value. ``place`` is empty, or the path of the value and a colon."""
    if isinstance(shape, dict) and isinstance(value, dict):
        yield from _problems_of_table(value, shape, place)
    elif isinstance(shape, list) and isinstance(value, list):
        for index, item in enumerate(value):
            yield from _problems(item, shape[0], _join(place, index))
    elif not _fits(value, shape):
        yield f"{place}{_describe(shape)} was expected"


def _problems_of_table(table: dict[str, Any], shape: dict[Any, Any], place: str) -> Iterator[str]:
    for name, inner in shape.items():
        if name is ...:
            for key, value in table.items():
                yield from _problems(value, inner, _join(place, key))
            continue
        key = name.removesuffix("?")
        if key in table:
            yield from _problems(table[key], inner, _join(place, key))
        elif key == name:
            yield f"{place}the key {key!r} is missing"


def _join(place: str, key: object) -> str:
    return f"{place.removesuffix(': ')}.{key}: " if place else f"{key}: "


def _fits(value: Any, shape: Any) -> bool:
    if isinstance(shape, tuple):
        return any(next(_problems(value, each, ""), None) is None for each in shape)
    if isinstance(shape, type):
        return type(value) in ((int, float) if shape is float else (shape,))
    return type(value) is type(shape) and value == shape


def _describe(shape: Any) -> str:
    if isinstance(shape, tuple):
        return " or ".join(map(_describe, shape))
    kind = type(shape) if isinstance(shape, (list, dict)) else shape
    return _NAMES.get(kind, str(kind))
