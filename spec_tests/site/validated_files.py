"""Read files of results and check them against their JSON schemas."""

import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

__all__ = ["SCHEMAS", "RefusedError", "document", "read_verdicts"]

SCHEMAS = Path(__file__).with_name("schemas")
#: Length in characters to which the text of a schema error is cut.
_MAX_LENGTH = 200

Tests = list[dict[str, Any]]


class RefusedError(ValueError):
    """The error of a file or folder that is not valid. The text is one sentence."""


def read_verdicts(path: Path) -> tuple[dict[str, Any], Tests]:
    """Return the metadata and the tests in a file of verdicts. Old files have no metadata.

    Raises:
        RefusedError: The file cannot be read, violates the schema, or has no tests.
    """
    lines = list(_read_lines(path))
    runs = [line["run"] for line in lines if "run" in line]
    tests = [line for line in lines if "run" not in line]
    if not tests:
        raise RefusedError(f"{path} contains no verdicts")
    if len(runs) > 1:
        raise RefusedError(f"{path} contains {len(runs)} runs; a file of verdicts contains one")
    return (runs[0] if runs else {}), tests


def _read_lines(path: Path) -> Iterator[dict[str, Any]]:
    for number, text in enumerate(_read_text(path).split("\n"), 1):
        if text.strip():
            yield _validate(_parse_json(text, f"{path}, line {number}"), "verdicts", path, number)


def document(path: Path, schema: str) -> Any:
    """Return the value of a JSON file.

    Args:
        path: The file.
        schema: ``environment``, ``benchmark`` or ``trend``.

    Raises:
        RefusedError: The file cannot be read, or violates the schema.
    """
    return _validate(_parse_json(_read_text(path), str(path)), schema, path)


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RefusedError(f"{path} cannot be read: {error}") from None


def _parse_json(text: str, source: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RefusedError(f"{source} is not JSON: {error}") from None


def _validate(value: Any, schema: str, path: Path, line: int | None = None) -> Any:
    error = best_match(_validator(schema).iter_errors(value))
    if error is None:
        return value
    place = f"{path}, line {line}" if line is not None else f"{path}"
    inside = ".".join(map(str, error.absolute_path))
    message = " ".join(error.message.split())
    short = message if len(message) <= _MAX_LENGTH else f"{message[:_MAX_LENGTH]} …"
    raise RefusedError(f"{place}: {inside + ': ' if inside else ''}{short}")


@functools.cache
def _validator(schema: str) -> Draft202012Validator:
    text = (SCHEMAS / f"{schema}.schema.json").read_text(encoding="utf-8")
    return Draft202012Validator(json.loads(text))
