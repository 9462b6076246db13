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
        differs: One sentence about the differences.
        torch: The release of PyTorch for the run.
        install: Requirements for pip, beside PyTorch and those of the suite.
        build: Requirements for building ``install`` without build isolation.
        settings: Environment variables of the installation.
        path: The folder of this package that holds it, if it is not installed.
        warns: The beginnings of warnings that every call issues; the run ignores them.
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
        """The file that maps the names of torch.nn.parallel to its own; None if it has none."""
        found = HERE / "maps" / f"{self.name}.toml"
        return found if found.exists() else None

    @property
    def report_target(self) -> str:
        """The target that its report names: every release of the reference has the same."""
        return self.target if self.target == REFERENCE else self.name


def load(source: Path = HERE / "others.toml") -> dict[str, Implementation]:
    """Return all implementations by name, in the order of the file."""
    tables = tomllib.loads(source.read_text(encoding="utf-8"))
    return {name: _implementation(name, table) for name, table in tables.items()}


def _implementation(name: str, table: Mapping[str, Any]) -> Implementation:
    lists = {key: tuple(value) for key, value in table.items() if isinstance(value, list)}
    return Implementation(name=name, **{**table, **lists})
