"""Print the ratios of a saved run of the benchmarks, and compare them with those of another run.

``python -m bench.compare FILE`` reads JSON of pytest-benchmark. The ratio of a row is the median
of the ratios of single turns: the time of torch.nn.parallel divided by that of the target. A
ratio below 1 means that the target takes longer.

With ``--before OLD`` the table also has the ratios of another saved or published run, and the
change. The floor of a row is 85 % of its old ratio; on another machine it is at most 1. The exit
status is 1 if a row is below its floor. A row that OLD lacks is not judged, and neither is a row
whose quartiles lie on both sides of its floor: measure again on an idle machine. If no row is
judged, the exit status is 3. Rows of OLD that FILE lacks are counted and named; they do not change
the exit status.
"""

import argparse
import signal
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from spec_tests.machine import input_files
from spec_tests.machine.options import DEFAULT_TARGET

from . import benchmark_files
from .ratios import Ratio, ratios

#: The least allowed ratio, as a part of the ratio in the run before.
KEPT = 0.85
#: The exit status if no row is judged.
NOTHING_JUDGED = 3
#: The number of rows that only OLD has whose names are printed.
MAX_NAMES = 5
#: The verdicts on a row.
OK, BELOW, UNSURE, FREE = "ok", "BELOW", "unsure", "-"


def print_table(
    run: Mapping[str, Any], before: Mapping[str, float] | None = None, most: float = float("inf")
) -> dict[str, str]:
    """Print the table of a run saved by pytest-benchmark; return the verdict on each row.

    Args:
        run: The data that pytest-benchmark saved.
        before: The ratio of each row in an older run, if there is one.
        most: The largest floor.

    Raises:
        ValueError: No benchmark in ``run`` was run for both libraries.
    """
    table = list(ratios(run))
    if not table:
        raise ValueError("no benchmark was run for both libraries: there is nothing to compare")
    title = f"reference / {run['machine_info'].get('target', DEFAULT_TARGET)}"
    columns = "" if before is None else f"{'before':>6}{'change':>8}"
    print(f"{title:<52}{'median':>8}  {'quartiles':<18}{columns}")
    verdicts = {}
    for ratio in table:
        old = (before or {}).get(ratio.group)
        verdict = FREE if old is None else _judge(ratio, min(KEPT * old, most))
        verdicts[ratio.group] = verdict
        spread = f"{ratio.low:.2f} to {ratio.high:.2f}"
        change = "" if before is None else f"{_format_change(ratio.value, old)}  {verdict}"
        print(f"{ratio.group:<52}{ratio.value:>8.2f}  {spread:<18}{change}".rstrip())
    return verdicts


def _format_change(value: float, old: float | None) -> str:
    return f"{'-':>6}{'-':>8}" if old is None else f"{old:>6.2f}{value / old - 1:>+8.0%}"


def _judge(ratio: Ratio, floor: float) -> str:
    if ratio.low < floor <= ratio.high:
        return UNSURE
    return OK if ratio.value >= floor else BELOW


def _read_before(path: Path) -> tuple[dict[str, float], Mapping[str, Any]]:
    """Return the ratios of a saved run, or the medians of published ones, and the machine."""
    data = benchmark_files.read_any(path)
    found: dict[str, list[float]] = {}
    for run in data["runs"]:
        for ratio in ratios(run):
            found.setdefault(ratio.group, []).append(ratio.value)
    return {group: median(values) for group, values in found.items()}, data["machine"]


def _kind_of(machine: Mapping[str, Any]) -> object:
    """Return the parts of a machine on which ratios depend."""
    release = str(machine["python_version"]).partition(" ")[0].split(".")[:2]
    return machine["cpu"], release, machine.get("threads")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the ratios; return 1 if one is below its floor, 3 if none is judged."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {__package__}.compare", description=main.__doc__
    )
    parser.add_argument("file", type=Path, help="JSON written by pytest --benchmark-json")
    parser.add_argument(
        "--before",
        type=Path,
        metavar="OLD",
        help="another such file, or a published one: print its ratios, and the change of each "
        f"ratio; a floor is {KEPT:.0%}% of the old ratio",
    )
    options = parser.parse_args(arguments)
    try:
        run = benchmark_files.load(options.file)
        if options.before is None:
            print_table(run)
            return 0
        old, machine = _read_before(options.before)
        is_same = _kind_of(machine) == _kind_of(benchmark_files.machine_of(run))
        if not is_same:
            print(f"{options.before} was measured on another machine, so a floor is at most 1")
        verdicts = print_table(run, old, float("inf") if is_same else 1.0)
    except input_files.RefusedError as error:
        parser.exit(2, f"{error}\n")
    except (OSError, ValueError) as error:
        parser.exit(2, f"{options.file}: {error}\n")
    counts = Counter(verdicts.values())
    print(f"\njudged {counts[OK] + counts[BELOW]} of {len(verdicts)} rows")
    if counts[UNSURE]:
        print(
            f"unsure: {counts[UNSURE]} row(s) with quartiles on both sides of the floor; "
            "measure again on an idle machine"
        )
    if gone := [row for row in old if row not in verdicts]:
        rest = ", ..." if len(gone) > MAX_NAMES else ""
        print(f"only in {options.before}: {len(gone)} row(s): {', '.join(gone[:MAX_NAMES])}{rest}")
    if counts[BELOW]:
        below = ", ".join(row for row, verdict in verdicts.items() if verdict == BELOW)
        print(f"below their floors: {below}")
        return 1
    return 0 if counts[OK] else NOTHING_JUDGED


if __name__ == "__main__":
    # End quietly if the reader of the output, such as `head`, ends.
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(main())
