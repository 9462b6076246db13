"""Read files of results and check them against their JSON schemas."""

import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from spec_tests.harness import input_files
from spec_tests.harness.input_files import RefusedError

__all__ = ["SCHEMAS", "RefusedError", "document", "read_verdicts", "validate"]

SCHEMAS = Path(__file__).with_name("schemas")
Tests = list[dict[str, Any]]


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
    for number, text in enumerate(input_files.read_text(path).split("\n"), 1):
        if text.strip():
            place = f"{path}, line {number}"
            yield validate(input_files.parse_json(text, place), "verdicts", place)


def document(path: Path, schema: str) -> Any:
    """Return the value of a JSON file.

    Args:
        path: The file.
        schema: ``environment``, ``benchmark`` or ``trend``.

    Raises:
        RefusedError: The file cannot be read, or violates the schema.
    """
    return validate(input_files.parse_json(input_files.read_text(path), str(path)), schema, path)


def validate(value: Any, schema: str, source: object) -> Any:
    """Return a value of the file ``source``; raise RefusedError if it violates the schema."""
    error = best_match(_validator(schema).iter_errors(value))
    if error is None:
        return value
    inside = ".".join(map(str, error.absolute_path))
    raise input_files.refuse(source, f"{inside}: {error.message}" if inside else error.message)


@functools.cache
def _validator(schema: str) -> Draft202012Validator:
    text = (SCHEMAS / f"{schema}.schema.json").read_text(encoding="utf-8")
    return Draft202012Validator(json.loads(text))
