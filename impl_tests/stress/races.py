"""Data races put into impl on purpose, which show what the stress test finds."""

import sys
import tomllib
from pathlib import Path

from impl_tests.mutants import Mutant

__all__ = ["load", "write"]


def load() -> dict[str, Mutant]:
    """All of ``races.toml``, by name."""
    tables = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["race"]
    return {table["name"]: Mutant(breaks=(), **table) for table in tables}


def write(name: str, home: Path) -> str:
    """Write the wrong package below ``home``, where it can be imported, and give its name."""
    race = load()[name]
    race.write(home)
    sys.path.insert(0, str(home))
    return race.package
