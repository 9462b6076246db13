"""Published files: JSON documents with one line for each entry."""

import json
from collections.abc import Mapping
from typing import Any


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
