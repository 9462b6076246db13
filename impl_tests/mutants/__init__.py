"""Deliberately wrong targets: impl with one passage replaced.

A mutant proves that a test can fail. Each names the clauses that it breaks; the tests of every one
of these clauses must fail on it.
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
        name: What is wrong, in a few words joined by hyphens.
        breaks: The clauses whose tests must fail on it.
        file: The file of impl that is changed.
        old: The passage that is replaced; it occurs once in the file.
        new: What stands there instead.
    """

    name: str
    breaks: tuple[str, ...]
    file: str
    old: str
    new: str

    @property
    def package(self) -> str:
        """The name under which the wrong package is imported."""
        return "mutant_" + self.name.replace("-", "_").replace(".", "_")

    def apply(self, text: str) -> str:
        """``text`` of the file with the passage replaced.

        Raises:
            ValueError: the passage does not occur exactly once, or is not changed.
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
        home = folder / self.package
        shutil.copytree(IMPL, home, ignore=shutil.ignore_patterns("__pycache__"))
        path = home / self.file
        path.write_text(self.apply(path.read_text(encoding="utf-8")), encoding="utf-8")


def load() -> dict[str, Mutant]:
    """All mutants by name.

    Raises:
        ValueError: two mutants have one name.
    """
    found: dict[str, Mutant] = {}
    for path in sorted(FOLDER.glob("*.toml")):
        for table in tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]:
            mutant = Mutant(**{**table, "breaks": tuple(table["breaks"])})
            if mutant.name in found:
                raise ValueError(f"two mutants are called {mutant.name}")
            found[mutant.name] = mutant
    return found
