"""Print the ratios of a saved run, and compare each ratio with its required minimum (its floor).

``python -m bench.compare FILE`` reads JSON of pytest-benchmark. The ratio of a row is the median
time of torch.nn.parallel divided by that of impl. A row is below its floor in ``floors.toml`` if
the floor exceeds the upper quartile of torch.nn.parallel divided by the lower quartile of impl.
The command measures such a row up to twice more, each time in a new run, because other processes
may have used the processor. The exit status is 1 if a row is below its floor every time. Absolute
times are not checked.
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

#: Number of measurements. A row fails if it is below its floor in all of them.
ATTEMPTS = 3

#: Seconds per benchmark of a repeated measurement. A longer measurement has less noise.
REPEAT_SECONDS = 2


#: The number of characters that a bar has for a ratio of 1, and at most.
BAR, MAX_BAR = 8, 32


def format_row(ratio: Ratio) -> str:
    """Return the line for ``ratio`` in the printed table. On a terminal it ends with a bar."""
    floor = "-" if ratio.floor is None else f"{ratio.floor:.2f}"
    verdict = "ok" if ratio.passes else "BELOW"
    spread = f"{ratio.low:.2f} to {ratio.high:.2f}"
    bar = "█" * min(MAX_BAR, round(BAR * ratio.value)) if sys.stdout.isatty() else ""
    row = f"{ratio.group:<52}{ratio.value:>8.2f}  {spread:<18}{floor:>6}  {verdict:<5}  {bar}"
    return row.rstrip()


def find_rows_below(
    run: Mapping[str, Any],
    floors: Mapping[str, float],
    measure: Callable[[Collection[str]], Mapping[str, Any]],
) -> list[str]:
    """Print the table of ``run``, and measure rows that are below their floors again.

    Args:
        run: A run saved by pytest-benchmark.
        floors: Row -> the required minimum of its ratio.
        measure: Runs the benchmarks with the given names and returns the saved run.

    Returns:
        The rows that were below their floors ``ATTEMPTS`` times.

    Raises:
        ValueError: No benchmark in ``run`` was run for both libraries.
    """
    below = _print_table(list(ratios(run, floors)))
    for attempt in range(1, ATTEMPTS):
        if not below:
            break
        print(f"\nmeasured again, {attempt} of {ATTEMPTS - 1}:")
        benchmarks = run["benchmarks"]
        names = [each["fullname"] for each in benchmarks if each["group"] in _groups_of(below)]
        again = list(ratios(measure(names), floors))
        below = _print_table([ratio for ratio in again if ratio.group in below])
    return below


def _print_table(table: list[Ratio]) -> list[str]:
    """Print the ratios; return the names of the rows that are below their floors."""
    if not table:
        raise ValueError("no benchmark was run for both libraries: there is nothing to compare")
    print(f"{'reference / impl':<52}{'median':>8}  {'quartiles':<18}{'floor':>6}")
    for ratio in table:
        print(format_row(ratio))
    return [ratio.group for ratio in table if not ratio.passes]


def _groups_of(rows: Collection[str]) -> set[str]:
    """Return the benchmark groups of ``rows``. The name of a row of bytes ends in `` (bytes)``."""
    return {row.removesuffix(" (bytes)") for row in rows}


def _run_benchmarks(benchmark_names: Collection[str]) -> Mapping[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "again.json")
        options = [f"--benchmark-max-time={REPEAT_SECONDS}", f"--benchmark-json={file}", "--quiet"]
        command = [sys.executable, "-m", "pytest", *benchmark_names, *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{done.stdout}{done.stderr}the benchmarks failed when measured again")
        run: dict[str, Any] = json.loads(file.read_text())
    return run


def main() -> int:
    """Print the ratios of a saved run; return 1 if a ratio is below its floor every time."""
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description=main.__doc__)
    parser.add_argument("file", type=Path, help="JSON written by pytest --benchmark-json")
    path = parser.parse_args().file
    try:
        run = json.loads(path.read_text())
        if "benchmarks" not in run:
            raise ValueError("this is not a run saved by pytest --benchmark-json")
        below = find_rows_below(run, tomllib.loads(FLOORS.read_text())["floors"], _run_benchmarks)
    except (OSError, ValueError) as error:
        parser.error(f"{path}: {error}")
    if below:
        print(f"\nbelow their floors {ATTEMPTS} times: {', '.join(below)}")
    return int(bool(below))


if __name__ == "__main__":
    sys.exit(main())
