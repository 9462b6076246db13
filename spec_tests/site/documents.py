"""Published files: JSON documents with one line for each entry."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spec_tests.harness import input_files

__all__ = ["dump", "dump_entries", "read"]


def dump(document: Mapping[str, Any]) -> str:
    """Return a document as JSON, with one line for each entry of its tables and lists."""
    parts = (f"{json.dumps(key)}: {dump_entries(value)}" for key, value in document.items())
    return "{\n" + ",\n".join(parts) + "\n}\n"


def dump_entries(value: Any) -> str:
    """Return a table or a list as JSON, with one line for each entry."""
    if isinstance(value, dict):
        lines = [f"{json.dumps(key)}: {json.dumps(each)}" for key, each in value.items()]
    else:
        lines = list(map(json.dumps, value))
    start, end = "{}" if isinstance(value, dict) else "[]"
    return f"{start}\n" + ",\n".join(lines) + f"\n{end}" if lines else start + end


def read(path: Path, shape: Any) -> Any:
    """Return the value of a JSON file.

    Raises:
        input_files.RefusedError: The file cannot be read, is not JSON, or has another shape.
    """
    document = input_files.parse_json(input_files.read_text(path), str(path))
    input_files.check(document, shape, path)
    return document
