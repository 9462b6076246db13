"""Perturbations: wrong behaviour that a program adds to the public functions of impl.

A perturbation is a line of three words: the *function*, such as ``comm.scatter``; the *kind*, the
change of the function's behaviour, such as ``rotated``; and the *guard*, the facts of a call, such
as ``devices:repeated``. Calls without these facts behave as before. The table
``perturbations.toml`` names, for clauses of the suite, a perturbation that fails a
test of the clause. The function `DEVICES` stands for the simulated devices: its kinds are the
names of `simulator.FAULTS`, such as ``device-left``.

* ``perturbations.toml``: the table. ``kinds.py``: the kinds. ``facts.py``: the facts of guards.
* ``replacement.py``: makes the calls of impl wrong, or records them, in one process.
* ``collected.py``, ``__main__.py``: run the suite with each perturbation.
"""

import tomllib
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ALWAYS", "DEVICES", "TABLE", "Perturbation", "load"]

TABLE = Path(__file__).parent / "perturbations.toml"
#: The guard of a perturbation that changes all calls.
ALWAYS = "always"
#: The chapter about devices. All its tests count as calls of a function with this name.
DEVICES = "devices"
#: Joins the facts of a guard.
AND = "&"


@dataclass(frozen=True)
class Perturbation:
    """A change of the behaviour of a public function.

    Args:
        function: The part and the name of the function, such as ``comm.scatter``.
        kind: A name of `kinds.KINDS`, with a word after a colon if the kind needs one.
        guard: Facts of a call. The function changes its behaviour only in calls with all facts.
    """

    function: str
    kind: str
    guard: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, text: str) -> "Perturbation":
        """Return the perturbation that a line describes.

        Raises:
            ValueError: The line does not have three words.
        """
        words = text.split()
        if len(words) != 3:
            raise ValueError(f"{text!r} is not 'function kind guard'")
        function, kind, guard = words
        facts = () if guard == ALWAYS else guard.split(AND)
        return cls(function, kind, frozenset(facts))

    def __str__(self) -> str:
        return f"{self.function} {self.kind} {AND.join(sorted(self.guard)) or ALWAYS}"


def load(path: Path = TABLE) -> dict[str, Perturbation]:
    """Return the table: the perturbation of each clause, in the order of the file."""
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    return {name: Perturbation.parse(text) for name, text in table["clauses"].items()}
