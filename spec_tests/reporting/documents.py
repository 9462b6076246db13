"""Published files: JSON documents with one line for each entry of their tables and lists."""

import json
from collections.abc import Mapping
from typing import Any


def dump(document: Mapping[str, Any]) -> str:
    """Return a document as JSON. A table with a text or a number, as a header, is one line."""
    parts = (f"{json.dumps(key)}: {_dump_value(value)}" for key, value in document.items())
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _dump_value(value: Any) -> str:
    is_header = isinstance(value, dict) and any(
        isinstance(each, (str, int, float)) for each in value.values()
    )
    return json.dumps(value) if is_header else dump_entries(value)


def dump_entries(value: Any) -> str:
    """Return a table or a list as JSON, with one line for each entry."""
    if isinstance(value, dict):
        lines = [f"{json.dumps(key)}: {json.dumps(each)}" for key, each in value.items()]
    else:
        lines = list(map(json.dumps, value))
    start, end = "{}" if isinstance(value, dict) else "[]"
    return f"{start}\n" + ",\n".join(lines) + f"\n{end}" if lines else start + end
