"""The other implementations of torch.nn.parallel.

They are the supported releases of PyTorch, and the implementations of ``others.toml``. An older
release with a ``wheel`` runs with the default release of PyTorch: see `wheels`.
"""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reports.others import wheels

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
REFERENCE = "torch.nn.parallel"
#: The supported releases of PyTorch. The first release of ``gate`` is the default. If a version of
#: Python without the GIL needs another one, ``free-threaded`` has it.
RELEASES = json.loads((ROOT / ".ci/releases.json").read_text(encoding="utf-8"))["torch"]


@dataclass(frozen=True)
class Implementation:
    """An implementation to validate: a release of PyTorch, or one table of ``others.toml``.

    Args:
        name: The name on the command line and in the optional file name ``maps/NAME.toml``.
        title: Package and release, as the pages show them.
        target: The Python module that the suite tests.
        torch: The release of PyTorch to install.
        install: Requirements for pip, in addition to PyTorch and the suite's requirements.
        build: Requirements for building ``install`` without build isolation.
        settings: Environment variables for pip.
        tests: The expression of pytest's ``-k`` that selects the tests; empty for all.
        facts: The file of tests that runs in place of the suite; empty for the suite.
        wheel: For the modules of an older release: the tags of its wheel, else empty.
    """

    name: str
    title: str
    target: str
    torch: str = RELEASES["gate"][0]
    install: tuple[str, ...] = ()
    build: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    tests: str = ""
    facts: str = ""
    wheel: Mapping[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> str:
        """The name of the virtual environment. Wheels share that of the default release."""
        return f"torch-{self.torch}" if self.wheel else self.name

    @property
    def version(self) -> str:
        """The release of PyTorch whose modules run."""
        return self.name.removeprefix("torch-") if self.wheel else self.torch

    @property
    def target_map_file(self) -> Path | None:
        """The file for ``--target-map``; None if the target needs none."""
        path = HERE / "maps" / f"{self.name}.toml"
        return path if path.exists() else None

    @property
    def report_target(self) -> str:
        """The name of the target in reports. All installed releases share one name."""
        if self.wheel:
            return f"{REFERENCE} {self.version}"
        return self.target if self.target == REFERENCE or self.facts else self.name


def load(source: Path = HERE / "others.toml") -> dict[str, Implementation]:
    """Return a dict from names to implementations: the releases, then those of the file."""
    tables = tomllib.loads(source.read_text(encoding="utf-8"))
    names = {f"torch-{torch}": torch for torch in RELEASES["older"] + RELEASES["gate"]}
    releases = [_release(name, torch, tables.pop(name, {})) for name, torch in names.items()]
    others = [_parse_implementation(name, table) for name, table in tables.items()]
    return {each.name: each for each in releases + others}


def _release(name: str, torch: str, table: Mapping[str, Any]) -> Implementation:
    title = f"{REFERENCE} of PyTorch {torch}"
    return Implementation(name, title, target=REFERENCE, torch=torch, **table)


def _parse_implementation(name: str, table: Mapping[str, Any]) -> Implementation:
    if "wheel" in table:
        version = name.removeprefix("torch-")
        title = f"{REFERENCE} of PyTorch {version}, on PyTorch {RELEASES['gate'][0]}"
        return Implementation(name, title, target=wheels.package_name(version), **table)
    lists = {key: tuple(value) for key, value in table.items() if isinstance(value, list)}
    return Implementation(name=name, **{**table, **lists})
