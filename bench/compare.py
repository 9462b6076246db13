"""Print reference time over impl time for a saved run, and hold the ratios to their floors.

``python -m bench.compare FILE`` reads pytest-benchmark's JSON. A row that is below its floor in
``floors.toml`` even by the quartiles that favour impl is measured once more, in a run of its own,
and then once more: something else may have had the processor. It exits with 1 if a row is below
its floor each time. Absolute times are never judged.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from spec_tests.site.ratios import LEGEND, Ratio, ratios

__all__ = ["FLOORS", "LEGEND", "Ratio", "line", "main", "ratios", "rows_below"]

FLOORS = Path(__file__).with_name("floors.toml")

#: How often a row that is below its floor is measured before that counts.
ATTEMPTS = 3

#: Seconds a benchmark: longer than in the short form, so that a burst of other work weighs less.
SECONDS = 2


def line(ratio: Ratio) -> str:
    """One row of the table."""
    floor = "-" if ratio.floor is None else f"{ratio.floor:.2f}"
    verdict = "ok" if ratio.passes else "BELOW"
    spread = f"{ratio.low:.2f} to {ratio.high:.2f}"
    return f"{ratio.group:<52}{ratio.value:>8.2f}  {spread:<18}{floor:>6}  {verdict}"


def rows_below(
    run: Mapping[str, Any],
    floors: Mapping[str, float],
    measure: Callable[[Collection[str]], Mapping[str, Any]],
) -> list[str]:
    """Print the table of ``run``; measure again what is below its floor.

    Args:
        run: What pytest-benchmark saved.
        floors: The least ratio by group.
        measure: Runs the benchmarks of these names; gives what pytest-benchmark saved.

    Returns:
        The groups that were below their floor ``ATTEMPTS`` times.

    Raises:
        ValueError: The run compares nothing.
    """
    below = _print_table(list(ratios(run, floors)))
    for attempt in range(1, ATTEMPTS):
        if not below:
            break
        print(f"\nmeasured again, {attempt} of {ATTEMPTS - 1}:")
        benchmarks = run["benchmarks"]
        names = [it["fullname"] for it in benchmarks if it["group"] in _groups(below)]
        again = list(ratios(measure(names), floors))
        below = _print_table([ratio for ratio in again if ratio.group in below])
    return below


def _print_table(found: list[Ratio]) -> list[str]:
    """Print these rows; give the groups of those below their floors."""
    if not found:
        raise ValueError("no benchmark was run for both libraries: there is nothing to compare")
    print(f"{'reference / impl':<52}{'median':>8}  {'quartiles':<18}{'floor':>6}")
    for ratio in found:
        print(line(ratio))
    return [ratio.group for ratio in found if not ratio.passes]


def _groups(rows: Collection[str]) -> set[str]:
    """The benchmarks' groups that these rows are of: one may have a row of times and of bytes."""
    return {row.removesuffix(" (bytes)") for row in rows}


def _measure(names: Collection[str]) -> Mapping[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "again.json")
        options = [f"--benchmark-max-time={SECONDS}", f"--benchmark-json={file}", "--quiet"]
        command = [sys.executable, "-m", "pytest", *names, *options]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode:
            sys.exit(f"{ended.stdout}{ended.stderr}measuring again failed")
        run: dict[str, Any] = json.loads(file.read_text())
    return run


def main() -> int:
    """Print the ratios of a saved run; return 1 if one stays below its floor."""
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description=main.__doc__)
    parser.add_argument("file", type=Path, help="JSON written by pytest --benchmark-json")
    path = parser.parse_args().file
    try:
        run = json.loads(path.read_text())
        below = rows_below(run, tomllib.loads(FLOORS.read_text())["floors"], _measure)
    except (OSError, ValueError) as error:
        parser.error(f"{path}: {error}")
    if below:
        print(f"\nbelow their floors {ATTEMPTS} times: {', '.join(below)}")
    return int(bool(below))


if __name__ == "__main__":
    sys.exit(main())
