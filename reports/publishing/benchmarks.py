"""The page of published benchmarks: a table for each report, as Markdown."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import benchmark_files
from bench.ratios import LEGEND, Ratio, ratios
from spec_tests.reporting.markdown import escape, format_table

_HEAD = f"""\
# Benchmarks

{LEGEND} There is a number for each run: the median time in ms, or the peak memory in MiB.

| column | what is measured |
| --- | --- |
| reference | torch.nn.parallel |
| impl | impl with its defaults |
| one device | the module alone, on the first device |
| impl in turn | `in_turn=True` |
| impl held, impl map | in a block of `hold()`; in `map()` |
| DistributedDataParallel | one rank for each device; simulated devices: on the CPU |
| impl cached | `cache_frozen_parameters=True` |
| loop | a thread and a copy of the module for each device, written by hand |

`python -m reports build` generates this page.
"""
#: The libraries that come first in the columns.
_FIRST = ("reference", "impl")
#: The machine and the runs of a report, as `benchmark_files.combine` returns them.
Data = Mapping[str, Any]
#: Target and hardware, and the data.
Report = tuple[Mapping[str, Any], Data]
#: The end of the names of rows that compare peak memory.
MEMORY = " (bytes)"


@dataclass(frozen=True)
class Row:
    """One group of benchmarks in all runs of a report.

    Args:
        group: The name of the group; it ends with ``MEMORY`` if the row compares peak memory.
        measured: For each library: the median time in seconds, or the peak memory in bytes, of
            each run.
        ratios: The ratio of each run; empty if the reference or impl was not measured.
    """

    group: str
    measured: Mapping[str, Sequence[float]]
    ratios: Sequence[Ratio] = field(default=())


def rows(data: Data) -> list[Row]:
    """Return the rows of a report, in the order of the benchmarks."""
    found: dict[str, list[Ratio]] = {}
    for run in data["runs"]:
        for ratio in ratios(run):
            found.setdefault(ratio.group, []).append(ratio)
    measured: dict[str, dict[str, list[float]]] = {}
    for group, library, value in _measurements(data):
        measured.setdefault(group, {}).setdefault(library, []).append(value)
    return [Row(group, each, found.get(group, ())) for group, each in measured.items()]


def _measurements(data: Data) -> Iterator[tuple[str, str, float]]:
    """Yield the group, the library and the number of each measurement."""
    for run in data["runs"]:
        for each in run["benchmarks"]:
            group, info = each["group"], each["extra_info"]
            yield group, info["library"], each["stats"]["median"]
            if "peak_bytes" in info:
                yield f"{group}{MEMORY}", info["library"], info["peak_bytes"]


def load(folder: Path) -> list[Report]:
    """Return the published benchmarks in the folder of reports, ordered by path."""
    return [*map(benchmark_files.read, sorted(folder.glob("benchmarks/*/*.json")))]


def format_page(reports: Sequence[Report]) -> str:
    """Return the page with a section for each report."""
    return "\n".join([_HEAD, *(_format_section(about, data) for about, data in reports)])


def _format_section(about: Mapping[str, Any], data: Data) -> str:
    release = str(data["machine"]["torch"]).partition("+")[0]
    title = escape(f"{about['target']}, torch {release}, {about['hardware']}")
    date = escape(data["runs"][-1]["datetime"][:10])
    return f"## {title}\n\n{date}. {_describe(data)}\n\n{_format_table(rows(data))}\n"


def _describe(data: Data) -> str:
    """Return a sentence about the machine and the runs."""
    machine = data["machine"]
    return escape(
        f"{machine['cpu']}, {machine['cores']} cores, {', '.join(machine['devices'])}; "
        f"torch {machine['torch']}, Python {machine['python_version']}; "
        f"{machine.get('threads', 'unknown')} intra-op thread(s); {len(data['runs'])} run(s)."
    )


def _format_table(found: Sequence[Row]) -> str:
    """Return a table with a column for each library."""
    names = dict.fromkeys([*_FIRST, *(name for row in found for name in row.measured)])
    header = ["row", *names, "reference / impl", "quartiles"]
    return "\n".join(format_table(header, [_format_row(row, list(names)) for row in found]))


def _format_row(row: Row, names: Sequence[str]) -> Sequence[str]:
    factor = 1 / 2**20 if row.group.endswith(MEMORY) else 1000
    measured = (row.measured.get(name, ()) for name in names)
    cells = [", ".join(f"{factor * each:.3g}" for each in numbers) or "-" for numbers in measured]
    if not row.ratios:
        return [row.group, *cells, "-", "-"]
    low, high = min(each.low for each in row.ratios), max(each.high for each in row.ratios)
    values = ", ".join(f"{each.value:.2f}" for each in row.ratios)
    return [row.group, *cells, values, f"{low:.2f} to {high:.2f}"]
