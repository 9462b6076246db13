"""Read the list of implementations, ``others.toml``."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["HERE", "ROOT", "Implementation", "load"]

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
REFERENCE = "torch.nn.parallel"


@dataclass(frozen=True)
class Implementation:
    """One implementation.

    Args:
        name: The name on the command line; ``maps/NAME.toml`` is its map, if it has one.
        title: Package and release, for people.
        target: The module that the suite imports.
        differs: One sentence about the differences from torch.nn.parallel.
        torch: The release of PyTorch for the run.
        install: Requirements for pip, in addition to PyTorch and those of the suite.
        build: Requirements for building ``install`` without build isolation.
        settings: Environment variables of the installation.
        path: The folder of its sources in this package, if it is not installed with pip.
        warns: The beginnings of warnings to ignore, which every call issues.
    """

    name: str
    title: str
    target: str
    differs: str
    torch: str
    install: tuple[str, ...] = ()
    build: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    path: str = ""
    warns: tuple[str, ...] = ()

    @property
    def map(self) -> Path | None:
        """The file that maps names of torch.nn.parallel to names of the target; None if absent."""
        found = HERE / "maps" / f"{self.name}.toml"
        return found if found.exists() else None

    @property
    def report_target(self) -> str:
        """The target in its report, which is the same for all releases of torch.nn.parallel."""
        return self.target if self.target == REFERENCE else self.name


def load(source: Path = HERE / "others.toml") -> dict[str, Implementation]:
    """Return all implementations by name, in the order of the file."""
    tables = tomllib.loads(source.read_text(encoding="utf-8"))
    return {name: _parse_implementation(name, table) for name, table in tables.items()}


def _parse_implementation(name: str, table: Mapping[str, Any]) -> Implementation:
    lists = {key: tuple(value) for key, value in table.items() if isinstance(value, list)}
    return Implementation(name=name, **{**table, **lists})
