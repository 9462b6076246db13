"""Print the efficiency of each variant in a saved run of ``bench_models.py``.

The efficiency of a variant is the time of the module alone on one device, divided by the number of
replicas and by the time of the variant. 1 is the best; if all replicas are on one GPU, the best is
1 divided by their number. Times are medians of all turns.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spec_tests.machine import input_files
from spec_tests.reporting.markdown import format_table

from . import benchmark_files

#: The library whose time is that of the module alone.
ALONE = "one device"


def efficiencies(run: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return the efficiency of each library in each group that has the module alone.

    Args:
        run: The data that pytest-benchmark saved.
    """
    groups: dict[str, dict[str, dict[str, Any]]] = {}
    for each in run["benchmarks"]:
        groups.setdefault(each["group"], {})[each["extra_info"]["library"]] = each
    return {
        group: {
            library: _median(members[ALONE]) / len(each["extra_info"]["devices"]) / _median(each)
            for library, each in members.items()
            if library != ALONE
        }
        for group, members in groups.items()
        if ALONE in members
    }


def _median(benchmark: Mapping[str, Any]) -> float:
    median: float = benchmark["stats"]["median"]
    return median


def print_table(run: Mapping[str, Any]) -> None:
    """Print a table with a row for each group and a column for each library."""
    table = efficiencies(run)
    libraries = [*dict.fromkeys(name for row in table.values() for name in row)]
    rows = [
        [group, *(f"{row[name]:.2f}" if name in row else "-" for name in libraries)]
        for group, row in table.items()
    ]
    print("efficiency on", ", ".join(run["machine_info"]["devices"]))
    print(*format_table(["row", *libraries], rows), sep="\n")


def main() -> None:
    """Print the table of the file that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m bench.efficiency", description=__doc__)
    parser.add_argument("file", type=Path, help="JSON written by pytest --benchmark-json")
    options = parser.parse_args()
    try:
        print_table(benchmark_files.load(options.file))
    except (OSError, input_files.RefusedError) as error:
        parser.exit(2, f"{error}\n")


if __name__ == "__main__":
    main()
