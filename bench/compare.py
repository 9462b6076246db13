"""Print reference time over impl time for a saved run, and compare the ratios with their floors.

``python -m bench.compare FILE`` reads pytest-benchmark's JSON. A row is below its floor of
``floors.toml`` if even the quartiles that favour impl are. Such a row is measured up to twice
more, each time in a new run, because other processes may have used the processor. The exit status
is 1 if a row is below its floor every time. Absolute times are not checked.
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

__all__ = ["FLOORS", "LEGEND", "Ratio", "find_rows_below", "format_row", "main", "ratios"]

FLOORS = Path(__file__).with_name("floors.toml")

#: The number of measurements before a row counts as below its floor.
ATTEMPTS = 3

#: Seconds per benchmark when it is measured again; longer than at first, for less noise.
SECONDS = 2


def format_row(ratio: Ratio) -> str:
    """Return a row of the table."""
    floor = "-" if ratio.floor is None else f"{ratio.floor:.2f}"
    verdict = "ok" if ratio.passes else "BELOW"
    spread = f"{ratio.low:.2f} to {ratio.high:.2f}"
    return f"{ratio.group:<52}{ratio.value:>8.2f}  {spread:<18}{floor:>6}  {verdict}"


def find_rows_below(
    run: Mapping[str, Any],
    floors: Mapping[str, float],
    measure: Callable[[Collection[str]], Mapping[str, Any]],
) -> list[str]:
    """Print the table of ``run``; measure the rows below their floors again.

    Args:
        run: A run saved by pytest-benchmark.
        floors: The least ratio by row.
        measure: Runs the benchmarks of these names and returns the saved run.

    Returns:
        The rows that were below their floors ``ATTEMPTS`` times.

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
    """Print these rows; return the names of those below their floors."""
    if not found:
        raise ValueError("no benchmark was run for both libraries: there is nothing to compare")
    print(f"{'reference / impl':<52}{'median':>8}  {'quartiles':<18}{'floor':>6}")
    for ratio in found:
        print(format_row(ratio))
    return [ratio.group for ratio in found if not ratio.passes]


def _groups(rows: Collection[str]) -> set[str]:
    """Return the benchmark groups of these rows; a group may have a row of times and of bytes."""
    return {row.removesuffix(" (bytes)") for row in rows}


def _run_benchmarks(names: Collection[str]) -> Mapping[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "again.json")
        options = [f"--benchmark-max-time={SECONDS}", f"--benchmark-json={file}", "--quiet"]
        command = [sys.executable, "-m", "pytest", *names, *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{done.stdout}{done.stderr}the benchmarks failed when measured again")
        run: dict[str, Any] = json.loads(file.read_text())
    return run


def main() -> int:
    """Print the ratios of a saved run; return 1 if one stays below its floor."""
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description=main.__doc__)
    parser.add_argument("file", type=Path, help="JSON written by pytest --benchmark-json")
    path = parser.parse_args().file
    try:
        run = json.loads(path.read_text())
        below = find_rows_below(run, tomllib.loads(FLOORS.read_text())["floors"], _run_benchmarks)
    except (OSError, ValueError) as error:
        parser.error(f"{path}: {error}")
    if below:
        print(f"\nbelow their floors {ATTEMPTS} times: {', '.join(below)}")
    return int(bool(below))


if __name__ == "__main__":
    sys.exit(main())
