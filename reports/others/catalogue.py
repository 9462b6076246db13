"""The implementations, as ``others.toml`` lists them."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["HERE", "ROOT", "Implementation", "load"]

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


@dataclass(frozen=True)
class Implementation:
    """One of them.

    Args:
        name: What ``tox -e others -- NAME`` takes; its map is ``maps/NAME.toml``, if it has one.
        title: Package and release, for people.
        target: What the suite imports.
        differs: What differs, in a sentence.
        torch: The release of PyTorch that it is judged with.
        install: What pip installs, beside PyTorch and the suite's own needs.
        build: What ``install`` is built with, where a build of its own would not do.
        settings: Variables for the time of the installation.
        path: A folder of this one that has the package.
        warns: How what it warns of in every call begins; else each call would fail.
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
        """Where it has its parts, if not where torch.nn.parallel has them."""
        found = HERE / "maps" / f"{self.name}.toml"
        return found if found.exists() else None


def load(source: Path = HERE / "others.toml") -> dict[str, Implementation]:
    """All of them by name, in the order of the file."""
    tables = tomllib.loads(source.read_text(encoding="utf-8"))
    return {name: _implementation(name, table) for name, table in tables.items()}


def _implementation(name: str, table: Mapping[str, Any]) -> Implementation:
    several = {key: tuple(value) for key, value in table.items() if isinstance(value, list)}
    return Implementation(name=name, **{**table, **several})
