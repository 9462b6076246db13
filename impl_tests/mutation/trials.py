"""Try changes to impl: run the tests of the changed line, beginning with the likeliest to fail."""

import functools
import importlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from impl_tests import forks
from impl_tests.changed_copy import IMPL
from impl_tests.mutation.changes import Change
from impl_tests.mutation.executed_lines import ExecutedLines
from impl_tests.mutation.session import CollectedTests, import_impl_from

#: Seconds that are added to each test's duration, so that the order of the fastest tests depends
#: less on their durations than on the changes that they have detected.
_OVERHEAD = 0.2
#: Estimated seconds for collecting a test's file, added to the duration of the test if the file is
#: not collected yet.
_COLLECTION = 1
#: A test without recorded lines runs later, because it rarely executes the changed line.
_UNRECORDED_WEIGHT = 30
#: A test runs earlier if it has detected nearby changes. This is the weight of each such change.
_KILL_WEIGHT = 10


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


class Kills:
    """The number of changes that each test has detected, in each file, function and line."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, change: Change, killer: str) -> None:
        """Count a change that the test ``killer`` detected."""
        self._counts.update((key, killer) for key in _location_keys(change))

    def order_tests(self, change: Change, lines: ExecutedLines) -> list[str]:
        """Return the tests that may detect a change, in the order in which they should run."""
        tests = lines.find_tests(change.file, change.line)
        cases = _number_cases(sorted(tests, key=lambda node_id: (lines.seconds[node_id], node_id)))

        def expected_seconds(node_id: str) -> float:
            kills = sum(self._counts[key, node_id] for key in _location_keys(change))
            seconds = lines.seconds[node_id] + _added_seconds(change, node_id)
            weight = _UNRECORDED_WEIGHT if node_id in lines.unrecorded else 1
            return weight * seconds * cases[node_id] / (1 + _KILL_WEIGHT * kills)

        return sorted(cases, key=expected_seconds)


def _added_seconds(change: Change, node_id: str) -> float:
    """Return the seconds to add to the duration of the test ``node_id``.

    The file of a test of a private module must be collected first. Nothing is added to tests in a
    file or a chapter that is named after the changed file, because they are the likeliest to fail.
    """
    path = Path("impl_tests", change.file)
    name = path.stem.strip("_")
    if node_id.startswith((str(path.with_name(f"test_{name}")), f"spec_tests/{name}/")):
        return 0
    return _COLLECTION if node_id.startswith("impl_tests") else _OVERHEAD


def _number_cases(node_ids: Iterable[str]) -> dict[str, int]:
    """Return, for each node id, its position from 1 among the cases of its test function."""
    count: Counter[str] = Counter()
    numbers: dict[str, int] = {}
    for node_id in node_ids:
        count.update([function := node_id.partition("[")[0]])
        numbers[node_id] = count[function]
    return numbers


def _location_keys(change: Change) -> tuple[str, ...]:
    """Return keys for the file, the function and the line of a change."""
    return change.file, f"{change.file} {change.place}", f"{change.file} {change.before}"


def run(
    tests: CollectedTests,
    lines: ExecutedLines,
    selected: Sequence[Change],
    *,
    seconds: float,
    processes: int,
) -> Iterator[Trial]:
    """Try each selected change for ``seconds`` of CPU time; yield each trial when it ends."""
    kills = Kills()
    jobs = (
        forks.Job(
            change,
            functools.partial(
                _find_killer, tests, change, kills.order_tests(change, lines), seconds
            ),
        )
        for change in selected
    )
    for count, ended in enumerate(forks.run(jobs, processes=processes), 1):
        change = ended.job.subject
        killer = "a hang or a crash" if ended.result is None else ended.result["killer"]
        if killer is not None:
            kills.add(change, killer)
        yield Trial(change, killer, ended.seconds, f"{count}/{len(selected)}")


def find_failing_tests(
    tests: CollectedTests, node_ids: Iterable[str], *, processes: int
) -> set[str]:
    """Run each test alone in a new process on unchanged impl; return the tests that fail."""
    jobs = (
        forks.Job(node_id, functools.partial(_is_failing, tests, node_id))
        for node_id in sorted(node_ids)
    )
    results = forks.run(jobs, processes=processes)
    return {ended.job.subject for ended in results if ended.result is not False}


def _is_failing(tests: CollectedTests, node_id: str, _: Path) -> bool:
    import_impl_from(IMPL.parent)
    return tests.first_failure([node_id]) is not None


def _find_killer(
    tests: CollectedTests, change: Change, node_ids: Sequence[str], seconds: float, folder: Path
) -> dict[str, str | None]:
    change.write(folder)
    import_impl_from(folder)
    try:
        importlib.import_module("impl")
    except Exception as error:
        return {"killer": f"the import of impl: {error!r}"}
    return {"killer": tests.first_failure(node_ids, seconds)}
