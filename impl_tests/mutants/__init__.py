"""Mutants: deliberately wrong targets, each a copy of impl with one passage replaced.

A mutant proves that a test can fail. It names the clauses that it breaks. Each of these clauses
must have a test that fails on the mutant.
"""

import shutil
import tomllib
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
IMPL = Path(__file__).resolve().parents[2] / "impl"


@dataclass(frozen=True)
class Mutant:
    """One wrong target.

    Args:
        name: A short description of the error, in words joined by hyphens.
        breaks: The clauses whose tests must fail on the mutant.
        file: The changed file of impl.
        old: The replaced passage; it occurs once in the file.
        new: The new passage.
    """

    name: str
    breaks: tuple[str, ...]
    file: str
    old: str
    new: str

    @property
    def package(self) -> str:
        """The name of the wrong package."""
        return "mutant_" + self.name.replace("-", "_").replace(".", "_")

    def apply(self, text: str) -> str:
        """Return ``text``, the file's content, with the passage replaced.

        Raises:
            ValueError: The passage does not occur exactly once, or the new passage equals it.
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
        """Write the wrong package into ``folder``."""
        package = folder / self.package
        shutil.copytree(IMPL, package, ignore=shutil.ignore_patterns("__pycache__"))
        path = package / self.file
        path.write_text(self.apply(path.read_text(encoding="utf-8")), encoding="utf-8")


def load() -> dict[str, Mutant]:
    """Return all mutants by name.

    Raises:
        ValueError: Two mutants have the same name.
    """
    found: dict[str, Mutant] = {}
    for path in sorted(FOLDER.glob("*.toml")):
        for table in tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]:
            mutant = Mutant(**{**table, "breaks": tuple(table["breaks"])})
            if mutant.name in found:
                raise ValueError(f"two mutants are called {mutant.name}")
            found[mutant.name] = mutant
    return found
