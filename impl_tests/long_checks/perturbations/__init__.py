"""Perturbations: wrong behaviour that a program adds to the public functions of impl.

A perturbation has two words: the *function*, such as ``comm.scatter``, and the *kind*, the change
of each call of the function, such as ``rotated``. The table ``perturbations.toml`` names the
clauses of each perturbation: a test of each of them fails with it. The function `DEVICES` stands
for the simulated devices: its kinds are the names of `simulator.FAULTS`, such as ``device-left``.

* ``perturbations.toml``: the table. ``kinds.py``: the kinds.
* ``replacement.py``: makes the calls of impl wrong in one process.
* ``__main__.py``, ``pytest_plugin.py``: run the tests of the clauses of each perturbation, each
  perturbation in a process.
"""

import sys
import tomllib
from pathlib import Path

__all__ = ["DEVICES", "PERTURBATION", "TABLE", "UNCHANGED", "load"]

TABLE = Path(__file__).parent / "perturbations.toml"
#: The function of the faults of the simulated devices.
DEVICES = "devices"
#: The kind that changes nothing.
UNCHANGED = "unchanged"
#: Environment variable: the perturbation of this process and of those that it starts.
PERTURBATION = "PERTURBATION"


def load(path: Path = TABLE) -> dict[str, list[str]]:
    """Return the table: the clauses of each perturbation, in the order of the file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        sys.exit(f"{path}: {error}. If the table has the row, add the clause to it")
