"""Try changes to impl and print the survivors: ``python -m impl_tests.mutation``."""

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
from impl_tests.mutation.lines import Lines, record
from impl_tests.mutation.session import Tests, with_tests

#: The least share of the changes with an effect that the tests must detect.
REQUIRED_SHARE = 0.98


def main() -> int:
    """Try changes; return 1 if the tests detect fewer than 98 % of those with an effect."""
    options = _parse_options()
    found = find_changes(tuple(options.files))
    excused = equivalent.load(found)
    chosen = [change for name, change in found.items() if name not in excused]
    if options.sample is not None:
        chosen = random.Random(options.seed).sample(chosen, options.sample)
    detected: set[Change] = set()

    def use(tests: Tests) -> None:
        detected.update(_try(tests, chosen, options))

    with_tests(use)
    _print_summary(chosen, detected, excused)
    return int(len(detected) < REQUIRED_SHARE * len(chosen))


def _try(tests: Tests, chosen: Sequence[Change], options: argparse.Namespace) -> Iterator[Change]:
    """Print the verdict on each change; yield the changes that a test detects."""
    lines = record(tests, processes=options.processes, folder=options.lines)
    print(f"{len(lines.seconds)} tests, {len(lines.left_out)} left out", flush=True)
    killers: dict[Change, str | None] = {**verdicts.load(options.verdicts, chosen, lines.seconds)}
    print(f"{len(killers)} verdicts taken from {options.verdicts}", flush=True)
    for trial in _run_trials(tests, lines, chosen, killers, options):
        print(trial, flush=True)
        if trial.killer is not None:
            verdicts.save(options.verdicts, trial.change, trial.killer)
        killers[trial.change] = trial.killer
    suspects = lines.seconds.keys() & set(killers.values())
    broken = trials.failing_tests(tests, suspects, processes=options.processes)
    for name in sorted(broken):
        print(f"fails on unchanged impl, so it detects nothing: {name}")
    return (change for change, killer in killers.items() if killer not in {None, *broken})


def _run_trials(
    tests: Tests,
    lines: Lines,
    chosen: Sequence[Change],
    killers: Mapping[Change, str | None],
    options: argparse.Namespace,
) -> Iterator[trials.Trial]:
    """Try the changes that have no verdict yet."""
    kills = trials.Kills()
    likely = verdicts.load(options.verdicts, chosen, lines.seconds, with_stale=True)
    for change, killer in likely.items():
        kills.add(change, killer)
    untried = [change for change in chosen if change not in killers]
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
        help="cache of detected changes, which are not tried again (default: %(default)s)",
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
    chosen: Sequence[Change], detected: set[Change], excused: Collection[str]
) -> None:
    tried = Counter(change.file for change in chosen)
    killed = Counter(change.file for change in detected)
    without_effect = Counter(name.split()[0] for name in excused)
    print(f"{'file':<20}{'tried':>9}{'detected':>9}{'survived':>10}{'equivalent':>12}")
    for file in sorted({*tried, *without_effect}):
        survived = tried[file] - killed[file]
        print(
            f"{file:<20}{tried[file]:>9}{killed[file]:>9}{survived:>10}{without_effect[file]:>12}"
        )
    for change in chosen:
        if change not in detected:
            print(f"survived: {change.name}")
    print(f"{len(excused)} changes have no visible effect (reasons: equivalent.toml)")
    share = len(detected) / max(1, len(chosen))
    print(f"{len(chosen)} others tried, {len(detected)} detected: {share:.1%}")


if __name__ == "__main__":
    sys.exit(main())
