"""Read TOML and JSON files that users supply: registers, target maps, verdicts and benchmarks.

A file that is not valid raises `RefusedError`. Its text is one line that names the file and, if a
value has another shape, its key. Classes with annotations describe the shapes.
"""

import json
import textwrap
import tomllib
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

_Shape = TypeVar("_Shape")


class RefusedError(pytest.UsageError, ValueError):  # type: ignore[misc]  # typed as final
    """The error of a file or folder that is not valid. The text is one line.

    pytest prints only this text.
    """


def refuse(source: object, problem: object) -> RefusedError:
    """Return the error with the text ``source: problem``, in one line."""
    return RefusedError(f"{source}: {in_one_line(str(problem))}")


def in_one_line(text: str) -> str:
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


def write(path: Path, text: str) -> None:
    """Write a file in UTF-8; raise a `RefusedError` if it cannot be written."""
    try:
        path.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise RefusedError(str(error)) from None


def read_toml(path: Path, shape: Any) -> dict[str, Any]:
    """Return the tables of a TOML file.

    Raises:
        RefusedError: The file cannot be read, is not TOML, or has another shape.
    """
    tables = parse_toml(read_text(path), str(path))
    convert(tables, shape, path)
    return tables


def parse_toml(text: str, source: str) -> dict[str, Any]:
    """Return the tables of a TOML text from the file ``source``; else raise a `RefusedError`."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise refuse(f"{source} is not TOML", error) from None


def parse_json(text: str, source: str) -> Any:
    """Return the value of a JSON text from the file ``source``; else raise a `RefusedError`."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise refuse(f"{source} is not JSON", error) from None


def convert(value: Any, shape: type[_Shape], source: object) -> _Shape:
    """Return a value of the file ``source`` as an object of a class with annotations.

    Raises:
        RefusedError: The value has another shape. The text names the key.
    """
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        raise refuse(source, error) from None
