"""Data races that can be inserted into impl. The stress test must find each of them."""

import sys
import tomllib
from pathlib import Path

from impl_tests.mutants import Mutant

__all__ = ["load", "write_package"]


def load() -> dict[str, Mutant]:
    """Return the races of ``races.toml``, keyed by name."""
    tables = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["race"]
    return {table["name"]: Mutant(breaks=(), **table) for table in tables}


def write_package(name: str, folder: Path) -> str:
    """Write impl with the race ``name`` into ``folder``; return the name of the new package."""
    race = load()[name]
    race.write(folder)
    sys.path.insert(0, str(folder))
    return race.package
