"""The floors of ``floors.toml``: the least ratios that benchmarks may have on one machine.

Processor, release of Python and number of intra-op threads identify the machine, because ratios
depend on them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spec_tests.machine import input_files

FLOORS = Path(__file__).with_name("floors.toml")


@dataclass
class _Floors:
    processor: str
    python: str
    threads: int
    floors: dict[str, float]


def load(file: Path = FLOORS) -> dict[str, Any]:
    """Return the machine, and ``floors``: the floor of each row.

    Raises:
        input_files.RefusedError: The file is not valid.
    """
    return input_files.read_toml(file, _Floors)


def were_measured_on(machine: Mapping[str, Any], table: Mapping[str, Any]) -> bool:
    """Return whether the floors of ``table`` were measured on a machine.

    Args:
        machine: The machine of a report on benchmarks: ``cpu``, ``python_version``, ``threads``.
        table: The table that `load` returns.
    """
    release = ".".join(str(machine["python_version"]).partition(" ")[0].split(".")[:2])
    found = machine["cpu"], release, machine.get("threads")
    return found == (table["processor"], table["python"], table["threads"])
