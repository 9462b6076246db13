"""The published results of the fault harness."""

import json
from pathlib import Path
from typing import Any

__all__ = ["read", "write"]

_FILE = Path(__file__).with_name("results.json")


def read() -> dict[str, dict[str, Any]]:
    """Return the results: program -> target -> result."""
    found: dict[str, dict[str, Any]] = json.loads(_FILE.read_text()) if _FILE.exists() else {}
    return found


def write(program: str, target: str, result: Any) -> None:
    """Replace the result of one program and one target."""
    results = read()
    results.setdefault(program, {})[target] = result
    _FILE.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
