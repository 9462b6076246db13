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
from impl_tests.mutation.changes import Change, changes
from impl_tests.mutation.lines import Lines, record
from impl_tests.mutation.session import Tests, with_tests

#: The share of the changes that matter which the tests must notice.
SHARE = 0.98


def main() -> int:
    """Try changes; return 1 if the tests notice fewer than 98 % of those that matter."""
    options = _options()
    found = changes(tuple(options.files))
    same = equivalent.load(found)
    chosen = [change for name, change in found.items() if name not in same]
    if options.sample is not None:
        chosen = random.Random(options.seed).sample(chosen, options.sample)
    if not options.files and options.sample is None:
        verdicts.forget_all_but(options.verdicts, chosen)
    noticed: set[Change] = set()

    def use(tests: Tests) -> None:
        noticed.update(_try(tests, chosen, options))

    with_tests(use)
    _print_summary(chosen, noticed, same)
    return int(len(noticed) < SHARE * len(chosen))


def _try(tests: Tests, chosen: Sequence[Change], options: argparse.Namespace) -> Iterator[Change]:
    """Print what becomes of each change; yield those that a test noticed, now or before."""
    lines = record(tests, processes=options.processes, folder=options.lines)
    print(f"{len(lines.seconds)} tests, {len(lines.left_out)} left out", flush=True)
    killers: dict[Change, str | None] = {
        **verdicts.load(options.verdicts, chosen, tests=lines.seconds)
    }
    print(f"{len(killers)} changes noticed before", flush=True)
    for each in _trials(tests, lines, chosen, killers, options):
        print(each, flush=True)
        if each.killer is not None:
            verdicts.keep(options.verdicts, each.change, each.killer)
        killers[each.change] = each.killer
    suspects = lines.seconds.keys() & set(killers.values())
    unfair = trials.unfair(tests, suspects, processes=options.processes)
    for name in sorted(unfair):
        print(f"fails on impl as it is, so that it notices nothing: {name}")
    return (change for change, killer in killers.items() if killer not in {None, *unfair})


def _trials(
    tests: Tests,
    lines: Lines,
    chosen: Sequence[Change],
    killers: Mapping[Change, str | None],
    options: argparse.Namespace,
) -> Iterator[trials.Trial]:
    """Try what was not noticed before."""
    kills = trials.Kills()
    for change, killer in verdicts.load_likely(options.verdicts, chosen, lines.seconds).items():
        kills.add(change, killer)
    rest = [change for change in chosen if change not in killers]
    seconds, processes = options.seconds, options.processes
    return trials.run(tests, lines, rest, kills=kills, seconds=seconds, processes=processes)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m impl_tests.mutation", description=main.__doc__
    )
    parser.add_argument("files", nargs="*", help="files of impl (default: what it imports)")
    parser.add_argument(
        "--seconds",
        type=float,
        default=math.inf,
        metavar="N",
        help="begin no test of a change after N seconds of work (default: all its tests)",
    )
    parser.add_argument(
        "--verdicts",
        type=Path,
        default=verdicts.RECORD,
        metavar="FILE",
        help="add to FILE what was noticed, and do not try again what is in it; a new one asks "
        "everything anew (default: %(default)s)",
    )
    parser.add_argument("--sample", type=int, metavar="N", help="try N changes (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the sample (default: 0)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, metavar="N")
    parser.add_argument(
        "--lines",
        type=Path,
        default=Path(tempfile.gettempdir()) / "torch-parallel-spec-lines",
        metavar="FOLDER",
        help="where to keep which test executes which line (default: %(default)s)",
    )
    return parser.parse_args()


def _print_summary(chosen: Sequence[Change], noticed: set[Change], same: Collection[str]) -> None:
    tried = Counter(change.file for change in chosen)
    seen = Counter(change.file for change in noticed)
    alike = Counter(name.split()[0] for name in same)
    print(f"{'file':<20}{'tried':>9}{'noticed':>9}{'survived':>10}{'equivalent':>12}")
    for file in sorted({*tried, *alike}):
        survived = tried[file] - seen[file]
        print(f"{file:<20}{tried[file]:>9}{seen[file]:>9}{survived:>10}{alike[file]:>12}")
    for change in chosen:
        if change not in noticed:
            print(f"survived: {change.name}")
    print(f"{len(same)} changes alter nothing that can be seen (equivalent.toml says why)")
    share = len(noticed) / max(1, len(chosen))
    print(f"{len(chosen)} others tried, {len(noticed)} noticed: {share:.1%}")


if __name__ == "__main__":
    sys.exit(main())
