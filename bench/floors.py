"""Find the floors of a machine: the least ratios that benchmarks on it may have.

``bench/floors.toml`` has a table of floors for each machine whose ratios were measured. Processor,
release of Python and number of intra-op threads identify a machine, because ratios depend on them.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spec_tests.harness.input_files import read_toml

__all__ = ["Floors", "find", "load"]

_MACHINE = {"processor": str, "python": str, "threads": int, "floors": {...: float}}


@dataclass(frozen=True)
class Floors:
    """The floors of one machine.

    Args:
        processor: The name of the processor.
        python: The minor release of Python, such as ``3.11``.
        threads: The number of intra-op threads.
        rows: The floor of each row.
    """

    processor: str
    python: str
    threads: int
    rows: Mapping[str, float]


def load(file: Path) -> list[Floors]:
    """Return the floors of all machines in ``floors.toml``; an empty list if there is no file.

    Raises:
        input_files.RefusedError: The file is not valid.
    """
    if not os.path.lexists(file):
        return []
    machines = read_toml(file, {"machine": [_MACHINE]})["machine"]
    return [
        Floors(each["processor"], each["python"], each["threads"], each["floors"])
        for each in machines
    ]


def find(all_floors: Sequence[Floors], machine: Mapping[str, Any]) -> Mapping[str, float]:
    """Return the floors of a machine by row; an empty mapping if none were measured on it.

    Args:
        all_floors: The floors of all machines.
        machine: The machine of a report on benchmarks: ``cpu``, ``python_version``, ``threads``.
    """
    release = ".".join(str(machine["python_version"]).partition(" ")[0].split(".")[:2])
    key = machine["cpu"], release, machine.get("threads")
    found = (each for each in all_floors if (each.processor, each.python, each.threads) == key)
    floors = next(found, None)
    return floors.rows if floors else {}
