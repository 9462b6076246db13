"""Try changes to impl and print the survivors: ``python -m impl_tests.mutation``."""

import argparse
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from impl_tests.mutation import equivalent, trials
from impl_tests.mutation.changes import Change, changes
from impl_tests.mutation.lines import record
from impl_tests.mutation.session import Tests, with_tests


def main() -> int:
    """Try changes; return 1 if the tests notice fewer than 90 % of those that matter."""
    options = _options()
    found = changes(tuple(options.files))
    same = equivalent.load(found)
    chosen = [change for name, change in found.items() if name not in same]
    if options.again is not None:
        lines = options.again.read_text(encoding="utf-8").splitlines()
        chosen = [change for change in chosen if f"survived: {change.name}" in lines]
    if options.sample is not None:
        chosen = random.Random(options.seed).sample(chosen, options.sample)
    noticed: set[Change] = set()

    def use(tests: Tests) -> None:
        noticed.update(_try(tests, chosen, options))

    with_tests(use)
    _print_summary(chosen, noticed, same)
    return int(len(noticed) < 0.9 * len(chosen))


def _try(tests: Tests, chosen: Sequence[Change], options: argparse.Namespace) -> Iterator[Change]:
    """Print what becomes of each change; yield those that a test noticed."""
    lines = record(tests, processes=options.processes, folder=options.lines)
    print(f"{len(lines.seconds)} tests, {len(lines.left_out)} left out", flush=True)
    found = []
    for each in trials.run(tests, lines, chosen, processes=options.processes):
        print(each, flush=True)
        found.append(each)
    killers = {each.killer for each in found if each.killer in lines.seconds}
    unfair = trials.unfair(tests, filter(None, killers), processes=options.processes)
    for name in sorted(unfair):
        print(f"fails on impl as it is, so that it notices nothing: {name}")
    return (each.change for each in found if each.killer not in {None, *unfair})


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m impl_tests.mutation", description=main.__doc__
    )
    parser.add_argument("files", nargs="*", help="files of impl to change (default: all)")
    parser.add_argument(
        "--again", type=Path, metavar="OUTPUT", help="try what survived by a former run's OUTPUT"
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
