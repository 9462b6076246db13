"""Read TOML and JSON files that users supply: registers, target maps, verdicts and benchmarks.

Each fault of a file raises `RefusedError`. Its text is one sentence that names the file.
"""

import json
import stat
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from spec_tests.harness import shapes

__all__ = [
    "RefusedError",
    "check",
    "parse_json",
    "parse_toml",
    "read_text",
    "read_toml",
    "refuse",
    "shorten",
    "usage_errors",
]

#: Length in characters to which the text of a fault is cut.
_MAX_LENGTH = 200
#: The size of the largest file in MiB. A file of verdicts of the whole suite is far smaller.
_MAX_MIB = 32


class RefusedError(ValueError):
    """The error of a file or folder that is not valid. The text is one sentence."""


@contextmanager
def usage_errors() -> Iterator[None]:
    """Turn a `RefusedError` of the block into a UsageError. pytest prints only its text."""
    try:
        yield
    except RefusedError as error:
        raise pytest.UsageError(str(error)) from None


def refuse(source: object, fault: object) -> RefusedError:
    """Return the error with the text ``source: fault``. A long fault is shortened."""
    return RefusedError(f"{source}: {shorten(str(fault))}")


def shorten(text: str) -> str:
    """Return a text as one line without control characters.

    Of a longer text, return the first 200 characters and an ellipsis.
    """
    start = text[: 2 * _MAX_LENGTH]
    line = " ".join("".join(each if each.isprintable() else " " for each in start).split())
    return line if len(line) <= _MAX_LENGTH else f"{line[:_MAX_LENGTH]} …"


def read_text(path: Path) -> str:
    """Return the text of a regular file of at most 32 MiB in UTF-8.

    Raises:
        RefusedError: There is no such file, or it cannot be read.
    """
    try:
        status = path.stat()
        # To read a pipe or a device may take forever.
        if not stat.S_ISREG(status.st_mode):
            fault = "it is not a regular file"
        elif status.st_size > _MAX_MIB * 2**20:
            fault = f"it is larger than {_MAX_MIB} MiB"
        else:
            return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        fault = getattr(error, "strerror", None) or str(error)
    raise RefusedError(f"{path} cannot be read: {fault}")


def read_toml(path: Path, shape: Any) -> dict[str, Any]:
    """Return the tables of a TOML file.

    Raises:
        RefusedError: The file cannot be read, is not TOML, or has another shape.
    """
    tables = parse_toml(read_text(path), str(path))
    check(tables, shape, path)
    return tables


def parse_toml(text: str, source: str) -> dict[str, Any]:
    """Return the tables of a TOML text.

    Args:
        text: The text.
        source: The file, for the text of the error.

    Raises:
        RefusedError: The text is not TOML.
    """
    tables: dict[str, Any] = _parse(tomllib.loads, text, f"{source} is not TOML")
    return tables


def parse_json(text: str, source: str) -> Any:
    """Return the value of a JSON text.

    Args:
        text: The text.
        source: The file, for the text of the error.

    Raises:
        RefusedError: The text is not JSON, or has half of a surrogate pair, which no file in UTF-8
            can contain.
    """
    return _parse(_load_json, text, f"{source} is not JSON")


def _parse(load: Callable[[str], Any], text: str, description: str) -> Any:
    try:
        return load(text)
    except RecursionError:
        raise refuse(description, "values are nested too deeply") from None
    except ValueError as error:
        raise refuse(description, error) from None


def _load_json(text: str) -> Any:
    value = json.loads(text)
    if r"\ud" in text.lower():
        json.dumps(value, ensure_ascii=False).encode()
    return value


def check(value: Any, shape: Any, source: object) -> None:
    """Raise RefusedError if a value of the file ``source`` has another shape; see `shapes`."""
    fault = shapes.find_fault(value, shape)
    if fault is not None:
        raise refuse(source, fault)
