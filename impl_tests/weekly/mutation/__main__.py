"""Try changes to impl and print those that no test detects."""

import argparse
import importlib
import os
import random
import sys
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from pathlib import Path

from impl_tests.helpers import forks
from impl_tests.helpers.collected import CHAPTERS, CollectedTests, call_with_tests
from impl_tests.weekly.mutation.changes import Change, find_changes
from impl_tests.weekly.mutation.lines import ExecutedLines, import_impl_from, record_lines


def main() -> int:
    """Try changes; print the survivors and the share that the tests detect.

    A survivor shows a missing test, code that can go, or a change that no caller can notice. With
    --orderings, return 1 if there is one.
    """
    options = _parse_options()
    found = find_changes(tuple(options.files))
    changes = [change for name, change in found.items() if (options.only or "") in name]
    if options.orderings:
        selected = [change for change in changes if change.is_ordering]
    else:
        count = min(options.sample, len(changes))
        selected = random.Random(options.seed).sample(changes, count)
    detected: set[Change] = set()

    def try_changes(tests: CollectedTests) -> None:
        detected.update(_find_detected_changes(tests, selected, options))

    if status := call_with_tests(try_changes, "--hypothesis-profile=mutation", *CHAPTERS):
        return status
    _print_summary(selected, detected)
    return int(options.orderings and len(detected) < len(selected))


def _find_detected_changes(
    tests: CollectedTests, selected: Sequence[Change], options: argparse.Namespace
) -> Iterator[Change]:
    """Try the selected changes and print each result; yield the changes that a test detects."""
    lines = record_lines(tests, processes=options.processes)
    print(f"{len(lines.seconds)} tests", flush=True)
    jobs = (
        forks.Job(change, partial(_find_killer, tests, change, order_tests(change, lines)))
        for change in selected
    )
    for count, ended in enumerate(forks.run(jobs, processes=options.processes), 1):
        change = ended.job.subject
        killer = "a hang or a crash" if ended.result is None else ended.result["killer"]
        verdict = "SURVIVED" if killer is None else f"detected by {killer}"
        position = f"{count}/{len(selected)}"
        print(f"[{position}] {change.name}  {verdict} ({ended.seconds:.1f} s)", flush=True)
        if killer is not None:
            yield change


def order_tests(change: Change, lines: ExecutedLines) -> list[str]:
    """Return the tests that may detect a change, in the order in which they should run.

    The tests of the changed module come first, then the fast ones. Tests without recorded lines
    come last: they rarely execute the line.
    """
    path = Path("impl_tests", change.file)
    module = path.stem.strip("_")
    own = str(path.with_name(f"test_{module}")), f"spec_tests/{module}/"

    def order(node_id: str) -> tuple[bool, bool, float, str]:
        is_own = node_id.startswith(own)
        return node_id in lines.unrecorded, not is_own, lines.seconds[node_id], node_id

    return sorted(lines.find_tests(change.file, change.line), key=order)


def _find_killer(
    tests: CollectedTests, change: Change, node_ids: Sequence[str], folder: Path
) -> dict[str, str | None]:
    change.write(folder)
    import_impl_from(folder)
    try:
        importlib.import_module("impl")
    except Exception as error:
        return {"killer": f"the import of impl: {error!r}"}
    failed = (each.test for each in tests.run(node_ids) if each.verdict == "failed")
    return {"killer": next(failed, None)}


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m impl_tests.weekly.mutation", description=main.__doc__
    )
    parser.add_argument(
        "files", nargs="*", help="files of impl (default: all except impl.distributed)"
    )
    parser.add_argument("--only", metavar="TEXT", help="try only changes with TEXT in the name")
    parser.add_argument(
        "--sample", type=int, default=300, metavar="N", help="try N changes (default: 300)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the sample (default: 0)")
    parser.add_argument(
        "--orderings",
        action="store_true",
        help="try each deletion of a wait, a record of a stream or a switch of streams",
    )
    parser.add_argument(
        "--processes",
        type=int,
        default=os.cpu_count() or 1,
        metavar="N",
        help="try N changes at a time (default: the number of cores)",
    )
    return parser.parse_args()


def _print_summary(selected: Sequence[Change], detected: Collection[Change]) -> None:
    """Print the survivors, and the share of detected changes."""
    for change in selected:
        if change not in detected:
            print(f"survived: {change.name}")
    share = len(detected) / max(1, len(selected))
    print(f"{len(selected)} changes tried, {len(detected)} detected: {share:.1%}")


if __name__ == "__main__":
    sys.exit(main())
