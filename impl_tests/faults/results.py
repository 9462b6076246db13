"""The published results of the fault harness."""

from pathlib import Path
from typing import Any

from impl_tests.published import read_results, write_results

__all__ = ["read", "write"]

_FILE = Path(__file__).with_name("results.json")


def read() -> dict[str, dict[str, Any]]:
    """Return the results: program -> target -> result."""
    return read_results(_FILE)


def write(program: str, target: str, result: Any) -> None:
    """Replace the result of one program and one target."""
    results = read()
    results.setdefault(program, {})[target] = result
    write_results(_FILE, results)
