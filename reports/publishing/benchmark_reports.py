"""Read published benchmarks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import benchmark_files
from spec_tests.site.runs import name_of

__all__ = ["BenchmarkReport", "load"]


@dataclass(frozen=True)
class BenchmarkReport:
    """Published benchmarks: several runs on one machine.

    Args:
        name: The name in ids of charts, made from the name of the file.
        about: The metadata.
        data: The machine and the runs.
    """

    name: str
    about: Mapping[str, Any]
    data: Mapping[str, Any] = field(repr=False)


def load(folder: Path) -> list[BenchmarkReport]:
    """Return the published benchmarks in the folder of reports, ordered by path.

    Raises:
        input_files.RefusedError: A file is not valid, or contains no runs.
    """
    return [
        BenchmarkReport(name_of(path), *benchmark_files.read(path))
        for path in sorted(folder.glob("benchmarks/*/*.json"))
    ]
