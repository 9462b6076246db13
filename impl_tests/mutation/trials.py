"""Try changes to impl: run the tests of the changed line, beginning with the likeliest to fail."""

import functools
import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from impl_tests import forks
from impl_tests.mutation.changes import Change
from impl_tests.mutation.lines import ExecutedLines
from impl_tests.mutation.tests import CollectedTests, import_impl_from

__all__ = ["Trial", "order_tests", "run"]


@dataclass(frozen=True)
class Trial:
    """The result of the tests on one change.

    Args:
        change: The change.
        killer: The test or the import that failed; None if no test failed.
        seconds: The duration of the trial in seconds.
        position: The number of the trial and the number of all trials, such as ``1/9``.
    """

    change: Change
    killer: str | None
    seconds: float
    position: str

    def __str__(self) -> str:
        verdict = f"detected by {self.killer}" if self.killer is not None else "SURVIVED"
        return f"[{self.position}] {self.change.name}  {verdict} ({self.seconds:.1f} s)"


def order_tests(change: Change, lines: ExecutedLines) -> list[str]:
    """Return the tests that may detect a change, in the order in which they should run.

    The tests of the changed module come first, then the fast ones. Tests without recorded lines
    come last: they rarely execute the line.
    """

    def order(node_id: str) -> tuple[bool, bool, float, str]:
        is_own = node_id.startswith(_own_tests(change))
        return node_id in lines.unrecorded, not is_own, lines.seconds[node_id], node_id

    return sorted(lines.find_tests(change.file, change.line), key=order)


def _own_tests(change: Change) -> tuple[str, str]:
    """Return the beginnings of the node ids of tests that are named after the changed file."""
    path = Path("impl_tests", change.file)
    name = path.stem.strip("_")
    return str(path.with_name(f"test_{name}")), f"spec_tests/{name}/"


def run(
    tests: CollectedTests, lines: ExecutedLines, selected: Sequence[Change], *, processes: int
) -> Iterator[Trial]:
    """Try each selected change; yield each trial when it ends."""
    jobs = (
        forks.Job(
            change, functools.partial(_find_killer, tests, change, order_tests(change, lines))
        )
        for change in selected
    )
    for count, ended in enumerate(forks.run(jobs, processes=processes), 1):
        change = ended.job.subject
        killer = "a hang or a crash" if ended.result is None else ended.result["killer"]
        yield Trial(change, killer, ended.seconds, f"{count}/{len(selected)}")


def _find_killer(
    tests: CollectedTests, change: Change, node_ids: Sequence[str], folder: Path
) -> dict[str, str | None]:
    change.write(folder)
    import_impl_from(folder)
    try:
        importlib.import_module("impl")
    except Exception as error:
        return {"killer": f"the import of impl: {error!r}"}
    failed = (outcome.name for outcome in tests.run(node_ids) if outcome.failed)
    return {"killer": next(failed, None)}
