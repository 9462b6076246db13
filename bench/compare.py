"""Print the ratios of a saved run, and compare each ratio with its required minimum (its floor).

``python -m bench.compare FILE`` reads JSON of pytest-benchmark. The ratio of a row is the median
of the ratios of single turns: the time of torch.nn.parallel divided by that of the target. The
exit status is 1 if a row is below its floor. A row without a floor is not judged, and neither is a
row whose quartiles lie on both sides of its floor: measure again on an idle machine. If no row is
judged, the exit status is 3.

With ``--before OLD`` the floors are 85 % of the ratios in another saved run, for any target.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from spec_tests.machine import input_files
from spec_tests.machine.options import DEFAULT_TARGET

from . import benchmark_files, floors
from .ratios import Ratio, ratios

#: The least allowed ratio, as a part of the ratio in the run before.
KEPT = 0.85
#: The exit status if no row is judged.
NOTHING_JUDGED = 3
#: The verdicts on a row.
OK, BELOW, UNSURE, FREE = "ok", "BELOW", "unsure", "-"


def print_table(run: Mapping[str, Any], floor_of: Mapping[str, float]) -> dict[str, str]:
    """Print the table of a run saved by pytest-benchmark; return the verdict on each row.

    Raises:
        ValueError: No benchmark in ``run`` was run for both libraries.
    """
    table = list(ratios(run, floor_of))
    if not table:
        raise ValueError("no benchmark was run for both libraries: there is nothing to compare")
    title = f"reference / {_target_of(run)}"
    print(f"{title:<52}{'median':>8}  {'quartiles':<18}{'floor':>6}")
    for ratio in table:
        floor = "-" if ratio.floor is None else f"{ratio.floor:.2f}"
        spread = f"{ratio.low:.2f} to {ratio.high:.2f}"
        print(f"{ratio.group:<52}{ratio.value:>8.2f}  {spread:<18}{floor:>6}  {_judge(ratio)}")
    return {ratio.group: _judge(ratio) for ratio in table}


def _judge(ratio: Ratio) -> str:
    if ratio.floor is None:
        return FREE
    if ratio.value >= ratio.floor:
        return OK
    return UNSURE if ratio.high >= ratio.floor else BELOW


def _find_floors(run: Mapping[str, Any], before: Path | None) -> Mapping[str, float]:
    """Return the floor of each row.

    On another machine than that of ``floors.toml``, a floor is at most 1.
    """
    if before is not None:
        return {each.group: KEPT * each.value for each in ratios(benchmark_files.load(before), {})}
    if _target_of(run) != DEFAULT_TARGET:
        return {}
    info = run["machine_info"]
    machine = {**info, "cpu": info["cpu"].get("brand_raw", "")}
    name = f"{machine['cpu'] or 'unknown processor'}, Python {machine['python_version']}"
    table = floors.load()
    rows: dict[str, float] = table["floors"]
    if floors.were_measured_on(machine, table):
        print(f"floors of {name}")
        return rows
    print(f"no floors were measured on {name}, so a floor is at most 1")
    return {row: min(1.0, floor) for row, floor in rows.items()}


def _target_of(run: Mapping[str, Any]) -> str:
    return str(run.get("machine_info", {}).get("target", DEFAULT_TARGET))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the ratios; return 1 if one is below its floor, 3 if none is judged."""
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description=main.__doc__)
    parser.add_argument("file", type=Path, help="JSON written by pytest --benchmark-json")
    parser.add_argument(
        "--before",
        type=Path,
        metavar="OLD",
        help=f"another such file: a floor is {KEPT:.0%}% of the ratio in it",
    )
    options = parser.parse_args(arguments)
    try:
        run = benchmark_files.load(options.file)
        verdicts = print_table(run, _find_floors(run, options.before))
    except input_files.RefusedError as error:
        parser.exit(2, f"{error}\n")
    except (OSError, ValueError) as error:
        parser.exit(2, f"{options.file}: {error}\n")
    counts = Counter(verdicts.values())
    print(f"\njudged {counts[OK] + counts[BELOW]} of {len(verdicts)} rows")
    if counts[FREE]:
        print(
            f"without a floor: {counts[FREE]} row(s); --before OLD takes floors from another run"
        )
    if counts[UNSURE]:
        print(
            f"unsure: {counts[UNSURE]} row(s) with quartiles on both sides of the floor; "
            "measure again on an idle machine"
        )
    if counts[BELOW]:
        below = ", ".join(row for row, verdict in verdicts.items() if verdict == BELOW)
        print(f"below their floors: {below}")
        return 1
    return 0 if counts[OK] else NOTHING_JUDGED


if __name__ == "__main__":
    sys.exit(main())
