"""Mutants: deliberately wrong versions of impl, each a copy with one passage replaced.

A mutant proves that a test can fail. It lists the clauses of spec_tests/clauses.toml that it
breaks. Each of these clauses must have a test that fails on the mutant.
"""

import shutil
import sys
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
IMPL = Path(__file__).resolve().parents[2] / "impl"


@dataclass(frozen=True)
class Mutant:
    """A wrong version of impl.

    Args:
        name: A short description of the error, in words joined by hyphens.
        file: The changed file, relative to the folder of impl.
        old: The replaced passage. It occurs exactly once in the file.
        new: The passage that replaces ``old``.
        breaks: The ids of the clauses whose tests must fail on the mutant.
        options: Options of the suite, such as ``--profile=lean``, that make the error visible.
    """

    name: str
    file: str
    old: str
    new: str
    breaks: tuple[str, ...] = ()
    options: tuple[str, ...] = ()

    @property
    def package(self) -> str:
        """The name under which the wrong version of impl can be imported."""
        return "mutant_" + self.name.replace("-", "_").replace(".", "_")

    def apply(self, text: str) -> str:
        """Return ``text``, the content of the file, with ``old`` replaced by ``new``.

        Raises:
            ValueError: ``old`` does not occur exactly once, or equals ``new``.
        """
        if text.count(self.old) != 1:
            raise ValueError(
                f"mutant {self.name}: its passage occurs {text.count(self.old)} times "
                f"in impl/{self.file}, expected once"
            )
        if self.old == self.new:
            raise ValueError(f"mutant {self.name} changes nothing")
        return text.replace(self.old, self.new)

    def write(self, folder: Path) -> None:
        """Write the wrong version of impl into ``folder``, and make it importable."""
        text = self.apply((IMPL / self.file).read_text(encoding="utf-8"))
        write_copy(folder / self.package, self.file, text)
        sys.path.insert(0, str(folder))


def write_copy(package: Path, file: str, text: str) -> None:
    """Write a copy of impl into the new folder ``package``, where ``file`` contains ``text``."""
    shutil.copytree(IMPL, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / file).write_text(text, encoding="utf-8")


def load(paths: Iterable[Path] = tuple(sorted(FOLDER.glob("*.toml")))) -> dict[str, Mutant]:
    """Return the mutants of TOML files, by default all of this folder, keyed by name.

    Raises:
        ValueError: Two mutants have the same name.
    """
    mutants: dict[str, Mutant] = {}
    for path in paths:
        for table in tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]:
            lists = {name: tuple(table.get(name, ())) for name in ("breaks", "options")}
            mutant = Mutant(**{**table, **lists})
            if mutant.name in mutants:
                raise ValueError(f"two mutants are called {mutant.name}")
            mutants[mutant.name] = mutant
    return mutants
