"""Print the ratios of a saved run, and compare each ratio with its required minimum (its floor).

``python -m bench.compare FILE`` reads JSON of pytest-benchmark. The ratio of a row is the median
of the ratios of single turns: the time of torch.nn.parallel divided by that of the target. The
exit status is 1 if a row is below its floor. A row without a floor is not judged, and neither is a
row whose quartiles lie on both sides of its floor: measure again on an idle machine. If no row is
judged, the exit status is 3.

With ``--before OLD`` the table has the ratios of another saved run beside the new ones, and their
change. The floors are then 85 % of the old ratios. This works for any target.
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


def print_table(
    run: Mapping[str, Any],
    floor_of: Mapping[str, float],
    before: Mapping[str, float] | None = None,
) -> dict[str, str]:
    """Print the table of a run saved by pytest-benchmark; return the verdict on each row.

    Args:
        run: The data that pytest-benchmark saved.
        floor_of: The floor of each row.
        before: The ratio of each row in an older run. The table then has columns for the old ratio
            and the change in place of the floor.

    Raises:
        ValueError: No benchmark in ``run`` was run for both libraries.
    """
    table = list(ratios(run, floor_of))
    if not table:
        raise ValueError("no benchmark was run for both libraries: there is nothing to compare")
    title = f"reference / {_target_of(run)}"
    columns = f"{'floor':>6}" if before is None else f"{'before':>6}{'change':>8}"
    print(f"{title:<52}{'median':>8}  {'quartiles':<18}{columns}")
    for ratio in table:
        spread = f"{ratio.low:.2f} to {ratio.high:.2f}"
        columns = _floor_column(ratio) if before is None else _change_columns(ratio, before)
        print(f"{ratio.group:<52}{ratio.value:>8.2f}  {spread:<18}{columns}  {_judge(ratio)}")
    return {ratio.group: _judge(ratio) for ratio in table}


def _floor_column(ratio: Ratio) -> str:
    return f"{'-' if ratio.floor is None else f'{ratio.floor:.2f}':>6}"


def _change_columns(ratio: Ratio, before: Mapping[str, float]) -> str:
    old = before.get(ratio.group)
    if old is None:
        return f"{'-':>6}{'-':>8}"
    return f"{old:>6.2f}{ratio.value / old - 1:>+8.0%}"


def _judge(ratio: Ratio) -> str:
    if ratio.floor is None:
        return FREE
    if ratio.value >= ratio.floor:
        return OK
    return UNSURE if ratio.high >= ratio.floor else BELOW


def _find_floors(run: Mapping[str, Any]) -> Mapping[str, float]:
    """Return the floor of each row.

    On another machine than that of ``floors.toml``, a floor is at most 1.
    """
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
        help="another such file: print its ratios, and the change of each ratio; a floor is "
        f"{KEPT:.0%}% of the old ratio",
    )
    options = parser.parse_args(arguments)
    try:
        run = benchmark_files.load(options.file)
        if options.before is None:
            verdicts = print_table(run, _find_floors(run))
        else:
            old = {
                each.group: each.value for each in ratios(benchmark_files.load(options.before), {})
            }
            floor_of = {group: KEPT * value for group, value in old.items()}
            verdicts = print_table(run, floor_of, old)
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
