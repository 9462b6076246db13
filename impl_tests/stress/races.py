"""Data races inserted into impl, which the stress test must find."""

import sys
import tomllib
from pathlib import Path

from impl_tests.mutants import Mutant

__all__ = ["load", "write"]


def load() -> dict[str, Mutant]:
    """Return the races of ``races.toml``, by name."""
    tables = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["race"]
    return {table["name"]: Mutant(breaks=(), **table) for table in tables}


def write(name: str, folder: Path) -> str:
    """Write the wrong package into ``folder``, make it importable, and return its name."""
    race = load()[name]
    race.write(folder)
    sys.path.insert(0, str(folder))
    return race.package
