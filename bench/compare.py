"""Print the ratios of a saved run, and compare each ratio with its required minimum (its floor).

``python -m bench.compare FILE`` reads JSON of pytest-benchmark. The ratio of a row is the median
of the ratios of single turns: the time of torch.nn.parallel divided by that of the target. The
command measures a row of impl below its floor up to twice more, each time in a new process. The
exit status is 1 if a row is below its floor every time. A row is noisy, and not judged, if other
processes used the processors during its measurement. A row without a floor is not judged.
If no row is judged, the exit status is 3. The command also prints the number of judged rows, and
the three rows that differ most from the last published run.

With ``--before OLD`` the floors are 85 % of the ratios in another saved run, for any target.
"""

import argparse
import math
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from spec_tests.harness import input_files
from spec_tests.harness.pytest_plugin.options import DEFAULT_TARGET

from . import benchmark_files, floors, saved_runs
from .ratios import Ratio, ratios

__all__ = ["FLOORS", "Verdict", "format_row", "judge_rows", "largest_moves", "main"]

FLOORS = Path(__file__).with_name("floors.toml")

#: The root of the checkout.
ROOT = Path(__file__).parents[1]

#: The published runs with which a run is compared.
PUBLISHED = ROOT / "reports/benchmarks/impl/torch-2.13.0_sim.json"

#: Number of measurements. A row fails if it is below its floor in all of them.
ATTEMPTS = 3

#: Seconds for each benchmark and library in a repeated measurement. More seconds mean less noise.
REPEAT_SECONDS = 2

#: The least allowed ratio, as a part of the ratio in the run before.
KEPT = 0.85

#: The number of printed rows whose ratios differ most from the published ones.
MOVES = 3

#: The exit status if no row is judged.
NOTHING_JUDGED = 3

#: The length of a bar in characters for a ratio of 1, and the largest length.
BAR, MAX_BAR = 8, 32


class Verdict(Enum):
    """The verdict on a row of the table."""

    OK = "ok"
    BELOW = "BELOW"
    NOISY = "noisy"
    FREE = "-"


def _judge(ratio: Ratio) -> Verdict:
    if ratio.is_noisy:
        return Verdict.NOISY
    if ratio.floor is None:
        return Verdict.FREE
    return Verdict.OK if ratio.passes else Verdict.BELOW


def format_row(ratio: Ratio) -> str:
    """Return the line for ``ratio`` in the printed table. On a terminal it ends with a bar."""
    floor = "-" if ratio.floor is None else f"{ratio.floor:.2f}"
    verdict = _judge(ratio)
    spread = f"{ratio.low:.2f} to {ratio.high:.2f}"
    bar = "█" * min(MAX_BAR, round(BAR * ratio.value)) if sys.stdout.isatty() else ""
    word = verdict.value
    row = f"{ratio.group:<52}{ratio.value:>8.2f}  {spread:<18}{floor:>6}  {word:<5}  {bar}"
    return _in_yellow(row.rstrip()) if verdict is Verdict.NOISY else row.rstrip()


def _in_yellow(text: str) -> str:
    """Return ``text``, in yellow on a terminal."""
    return f"\x1b[33m{text}\x1b[0m" if sys.stdout.isatty() else text


def judge_rows(
    run: Mapping[str, Any],
    floor_of: Mapping[str, float],
    measure: Callable[[Collection[str]], Mapping[str, Any]] | None,
) -> dict[str, Verdict]:
    """Print the table of ``run``, and measure rows that are below their floors again.

    A row that is noisy is not measured again: the machine is probably still busy.

    Args:
        run: A run saved by pytest-benchmark.
        floor_of: For each row: the required minimum of its ratio.
        measure: Runs the benchmarks with the given names and returns the saved run; None to
            measure no row again.

    Returns:
        The verdict on each row: `Verdict.BELOW` if the row was below its floor every time.

    Raises:
        ValueError: No benchmark in ``run`` was run for both libraries.
    """
    title = f"reference / {_target_of(run)}"
    print(f"{title:<52}{'median':>8}  {'quartiles':<18}{'floor':>6}")
    verdicts = _print_table(list(ratios(run, floor_of)))
    for attempt in range(1, ATTEMPTS):
        below = [row for row, verdict in verdicts.items() if verdict is Verdict.BELOW]
        if measure is None or not below:
            break
        print(f"\nmeasured again, {attempt} of {ATTEMPTS - 1}:")
        # A row of peak memory has the name of its group and a suffix.
        groups = {row.removesuffix(" (bytes)") for row in below}
        names = [
            each["fullname"]
            for each in run["benchmarks"]
            if each["group"] in groups and each["extra_info"]["library"] == "impl"
        ]
        again = list(ratios(measure(names), floor_of))
        verdicts |= _print_table([ratio for ratio in again if ratio.group in below])
    return verdicts


def _print_table(table: list[Ratio]) -> dict[str, Verdict]:
    """Print the ratios; return the verdict on each row."""
    if not table:
        raise ValueError("no benchmark was run for both libraries: there is nothing to compare")
    for ratio in table:
        print(format_row(ratio))
    return {ratio.group: _judge(ratio) for ratio in table}


def _find_floors(info: Mapping[str, Any]) -> Mapping[str, float]:
    """Return the floors of a machine, and print for which machine they were measured.

    On a machine that was not measured (another processor or release of Python), each floor is 1,
    or less if impl is the slower library.

    Args:
        info: ``machine_info`` of a run saved by pytest-benchmark.
    """
    machine = {**info, "cpu": info["cpu"].get("brand_raw", "")}
    name = f"{machine['cpu'] or 'unknown processor'}, Python {machine['python_version']}"
    all_floors = floors.load(FLOORS)
    if found := floors.find(all_floors, machine):
        print(f"floors of {name}")
        return found
    print(f"no floors were measured on {name}, so a floor is at most 1")
    rows = {row for each in all_floors for row in each.rows}
    return {row: min(1.0, *(each.rows.get(row, 1.0) for each in all_floors)) for row in rows}


def largest_moves(run: Mapping[str, Any], published: Mapping[str, Any]) -> list[str]:
    """Return a line for each of the three rows whose ratio differs most from the published one.

    Args:
        run: A run saved by pytest-benchmark.
        published: One run of a published report.
    """
    before = {ratio.group: ratio.value for ratio in ratios(published, {})}
    rows = [ratio for ratio in ratios(run, {}) if ratio.group in before]
    rows.sort(key=lambda ratio: abs(math.log(ratio.value / before[ratio.group])), reverse=True)
    return [
        f"{ratio.group:<52}{before[ratio.group]:>8.2f} -> {ratio.value:.2f}  "
        f"{ratio.value / before[ratio.group] - 1:+.0%}"
        for ratio in rows[:MOVES]
    ]


def _print_verdicts(verdicts: Mapping[str, Verdict]) -> None:
    """Print the number of judged rows, and the rows that were below their floors every time."""
    counts = Counter(verdicts.values())
    print(f"\njudged {counts[Verdict.OK] + counts[Verdict.BELOW]} of {len(verdicts)} rows")
    if noisy := counts[Verdict.NOISY]:
        reason = "other processes used the processors"
        print(_in_yellow(f"too noisy to judge: {noisy} row(s), because {reason}"))
    if free := counts[Verdict.FREE]:
        print(f"without a floor: {free} row(s); --before OLD takes the floors from another run")
    if below := [row for row, verdict in verdicts.items() if verdict is Verdict.BELOW]:
        print(f"below their floors every time: {', '.join(below)}")


def _target_of(run: Mapping[str, Any]) -> str:
    return str(run.get("machine_info", {}).get("target", DEFAULT_TARGET))


def _print_moves(run: Mapping[str, Any]) -> None:
    _, published = benchmark_files.read(PUBLISHED)
    machine, last = published["machine"], published["runs"][-1]
    name = f"{machine['cpu']}, Python {machine['python_version']}"
    print(f"\nmoved most since the published run of commit {last['commit'][:7]} ({name}):")
    print("\n".join(largest_moves(run, last)))


def _run_benchmarks(benchmark_names: Collection[str]) -> Mapping[str, Any]:
    """Run benchmarks of this checkout and return the saved run.

    Raises:
        ValueError: A name is not the node id of a benchmark in ``bench/``.
    """
    files = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("bench/bench_*.py")}
    for name in benchmark_names:
        # pytest would execute any other file, and read a name that begins with "-" as an option.
        if name.partition("::")[0] not in files:
            raise ValueError(f"{input_files.shorten(name)!r} is no benchmark of this checkout")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "again.json")
        options = [f"--benchmark-max-time={REPEAT_SECONDS}", f"--benchmark-json={file}", "--quiet"]
        command = [sys.executable, "-m", "pytest", *benchmark_names, *options]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{done.stdout}{done.stderr}the benchmarks failed when measured again")
        return saved_runs.load(file)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the ratios; return 1 if one is below its floor every time, 3 if none is judged."""
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description=main.__doc__)
    parser.add_argument("file", type=Path, help="JSON written by pytest --benchmark-json")
    parser.add_argument(
        "--before",
        type=Path,
        metavar="OLD",
        help=f"another such file: a floor is {KEPT:.0%}% of the ratio in it",
    )
    options = parser.parse_args(arguments)
    path, before = options.file, options.before
    try:
        run = saved_runs.load(path)
        if before is not None:
            kept = ratios(saved_runs.load(before), {})
            verdicts = judge_rows(run, {each.group: KEPT * each.value for each in kept}, None)
        elif _target_of(run) == DEFAULT_TARGET and PUBLISHED.exists():
            verdicts = judge_rows(run, _find_floors(run["machine_info"]), _run_benchmarks)
            _print_moves(run)
        else:
            verdicts = judge_rows(run, {}, None)
    except input_files.RefusedError as error:
        parser.exit(2, f"{error}\n")
    except (OSError, ValueError) as error:
        parser.exit(2, f"{path}: {error}\n")
    _print_verdicts(verdicts)
    if not {Verdict.OK, Verdict.BELOW} & {*verdicts.values()}:
        print(f"nothing was judged: exit status {NOTHING_JUDGED}")
        return NOTHING_JUDGED
    return int(Verdict.BELOW in verdicts.values())


if __name__ == "__main__":
    sys.exit(main())
