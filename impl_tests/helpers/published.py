"""Files of published results: JSON with one line for each result."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spec_tests.site import documents

__all__ = ["read_results", "write_results"]


def read_results(path: Path) -> dict[str, Any]:
    """Return the results in a file, by name."""
    results: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return results


def write_results(path: Path, results: Mapping[str, Any]) -> None:
    """Replace the results in a file."""
    path.write_text(f"{documents.dump_entries(results)}\n", encoding="utf-8")
