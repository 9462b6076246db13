"""Try changes to impl and print those that no test detects: ``python -m impl_tests.mutation``."""

import argparse
import math
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from impl_tests.mutation import equivalent, trials, verdicts
from impl_tests.mutation.changes import Change, find_changes
from impl_tests.mutation.executed_lines import ExecutedLines, record_lines
from impl_tests.mutation.session import CollectedTests, call_with_tests

#: The tests must detect at least this share of the changes that have an effect.
REQUIRED_SHARE = 0.98


def main() -> int:
    """Try changes; return 1 if the tests detect fewer than 98 % of those with an effect."""
    options = _parse_options()
    all_changes = find_changes(tuple(options.files))
    if options.write:
        print(f"{verdicts.write_to_repository(all_changes.values())} detected changes written")
        return 0
    without_effect = equivalent.load(all_changes)
    selected = [change for name, change in all_changes.items() if name not in without_effect]
    if options.sample is not None:
        selected = random.Random(options.seed).sample(selected, options.sample)
    detected: set[Change] = set()

    def try_changes(tests: CollectedTests) -> None:
        detected.update(_find_detected_changes(tests, selected, options))

    call_with_tests(try_changes)
    _print_summary(selected, detected, without_effect)
    return int(len(detected) < REQUIRED_SHARE * len(selected))


def _find_detected_changes(
    tests: CollectedTests, selected: Sequence[Change], options: argparse.Namespace
) -> Iterator[Change]:
    """Try the selected changes and print each result; yield the changes that a test detects."""
    lines = record_lines(tests, processes=options.processes, folder=options.lines)
    print(f"{len(lines.seconds)} tests", flush=True)
    cached = verdicts.load(options.verdicts, selected, lines.seconds)
    killers: dict[Change, str | None] = {**cached}
    print(f"{len(killers)} verdicts taken from {options.verdicts}", flush=True)
    for trial in _run_trials(tests, lines, selected, killers, options):
        print(trial, flush=True)
        if trial.killer is not None:
            verdicts.save(options.verdicts, trial.change, trial.killer)
        killers[trial.change] = trial.killer
    suspects = lines.seconds.keys() & set(killers.values())
    broken = trials.find_failing_tests(tests, suspects, processes=options.processes)
    for name in sorted(broken):
        print(f"fails on unchanged impl, so it detects nothing: {name}")
    return (change for change, killer in killers.items() if killer not in {None, *broken})


def _run_trials(
    tests: CollectedTests,
    lines: ExecutedLines,
    selected: Sequence[Change],
    killers: Mapping[Change, str | None],
    options: argparse.Namespace,
) -> Iterator[trials.Trial]:
    """Try the selected changes that are not in ``killers``; yield their trials."""
    kills = trials.Kills()
    former = verdicts.load(options.verdicts, selected, lines.seconds, with_stale=True)
    for change, killer in former.items():
        kills.add(change, killer)
    untried = [change for change in selected if change not in killers]
    seconds, processes = options.seconds, options.processes
    return trials.run(tests, lines, untried, kills=kills, seconds=seconds, processes=processes)


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m impl_tests.mutation", description=main.__doc__
    )
    parser.add_argument(
        "files", nargs="*", help="files of impl (default: all except impl.distributed)"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=math.inf,
        metavar="N",
        help="start no further test of a change after N seconds of CPU time (default: no limit)",
    )
    parser.add_argument(
        "--verdicts",
        type=Path,
        default=verdicts.CACHE,
        metavar="FILE",
        help="cache of detected changes; they are not tried again (default: %(default)s)",
    )
    parser.add_argument(
        "--write",
        action="store_true",
        help="try nothing: write the detected changes of former runs to detected.json",
    )
    parser.add_argument("--sample", type=int, metavar="N", help="try N changes (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the sample (default: 0)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, metavar="N")
    parser.add_argument(
        "--lines",
        type=Path,
        default=Path(tempfile.gettempdir()) / "torch-parallel-spec-lines",
        metavar="FOLDER",
        help="cache of the lines that each test executes (default: %(default)s)",
    )
    return parser.parse_args()


def _print_summary(
    selected: Sequence[Change], detected: set[Change], without_effect: Collection[str]
) -> None:
    """Print the counts of each file, the survivors, and the share of detected changes."""
    tried = Counter(change.file for change in selected)
    killed = Counter(change.file for change in detected)
    equivalents = Counter(name.split()[0] for name in without_effect)
    print(f"{'file':<20}{'tried':>9}{'detected':>9}{'survived':>10}{'equivalent':>12}")
    for file in sorted({*tried, *equivalents}):
        survived = tried[file] - killed[file]
        print(f"{file:<20}{tried[file]:>9}{killed[file]:>9}{survived:>10}{equivalents[file]:>12}")
    for change in selected:
        if change not in detected:
            print(f"survived: {change.name}")
    print(f"{len(without_effect)} changes have no visible effect (reasons: equivalent.toml)")
    share = len(detected) / max(1, len(selected))
    print(f"{len(selected)} others tried, {len(detected)} detected: {share:.1%}")


if __name__ == "__main__":
    sys.exit(main())
