"""Trials of changes: run the tests of the changed line, most promising first, until one fails."""

import functools
import importlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from impl_tests import forks
from impl_tests.mutants import IMPL
from impl_tests.mutation.changes import Change
from impl_tests.mutation.lines import Lines
from impl_tests.mutation.session import Tests, use_impl

#: Seconds added to a test's duration, so that the fastest tests do not always come first.
_OVERHEAD = 0.2
#: Seconds added for a test whose file must be collected first.
_COLLECTION = 1
#: The weight of each detected change near by in the order of the tests.
_KILL_WEIGHT = 10


@dataclass(frozen=True)
class Trial:
    """The verdict on one change.

    Args:
        change: The change.
        killer: The test that failed, or another failure; None if the change survived.
        seconds: The duration of the trial.
        position: The number of the trial, as ``1/9``.
    """

    change: Change
    killer: str | None
    seconds: float
    position: str

    def __str__(self) -> str:
        verdict = f"detected by {self.killer}" if self.killer is not None else "SURVIVED"
        return f"[{self.position}] {self.change.name}  {verdict} ({self.seconds:.1f} s)"


class Kills:
    """The detected changes, by test. Tests that detected changes near by run first."""

    def __init__(self) -> None:
        self._found: Counter[tuple[str, str]] = Counter()

    def add(self, change: Change, killer: str) -> None:
        """Count a change that a test detected."""
        self._found.update((scope, killer) for scope in _scopes(change))

    def order_tests(self, change: Change, lines: Lines) -> list[str]:
        """Return the tests that may detect a change, by the expected time until one does."""
        tests = lines.find_tests(change.file, change.line)
        cases = _case_numbers(sorted(tests, key=lambda name: (lines.seconds[name], name)))

        def expected_seconds(name: str) -> float:
            kills = sum(self._found[scope, name] for scope in _scopes(change))
            seconds = lines.seconds[name] + _overhead(change, name)
            return seconds * cases[name] / (1 + _KILL_WEIGHT * kills)

        return sorted(cases, key=expected_seconds)


def _overhead(change: Change, name: str) -> float:
    """Return the seconds to add to the duration of a test.

    Tests of private modules must be collected first. Those named after the changed file are the
    most likely to fail, so nothing is added for them.
    """
    if name.startswith(f"impl_tests/test_{Path(change.file).stem.strip('_')}"):
        return 0
    return _COLLECTION if name.startswith("impl_tests") else _OVERHEAD


def _case_numbers(names: Iterable[str]) -> dict[str, int]:
    """Number the parametrized cases of each test, so that one case of every test comes first."""
    count: Counter[str] = Counter()
    numbers: dict[str, int] = {}
    for name in names:
        count.update([function := name.partition("[")[0]])
        numbers[name] = count[function]
    return numbers


def _scopes(change: Change) -> tuple[str, ...]:
    """Return the file, the function and the line of a change, as keys."""
    return change.file, f"{change.file} {change.place}", f"{change.file} {change.before}"


def run(
    tests: Tests,
    lines: Lines,
    chosen: Sequence[Change],
    *,
    kills: Kills,
    seconds: float,
    processes: int,
) -> Iterator[Trial]:
    """Try each change for at most ``seconds`` of CPU time; yield trials as they end."""
    jobs = (
        forks.Job(
            change,
            functools.partial(_try, tests, change, kills.order_tests(change, lines), seconds),
        )
        for change in chosen
    )
    for count, done in enumerate(forks.run(jobs, processes=processes), 1):
        change = done.job.subject
        killer = "a hang or a crash" if done.result is None else done.result["killer"]
        if killer is not None:
            kills.add(change, killer)
        yield Trial(change, killer, done.seconds, f"{count}/{len(chosen)}")


def failing_tests(tests: Tests, names: Iterable[str], *, processes: int) -> set[str]:
    """Return the tests that fail on unchanged impl, each run alone in a new process."""
    jobs = (forks.Job(name, functools.partial(_fails, tests, name)) for name in sorted(names))
    ended = forks.run(jobs, processes=processes)
    return {done.job.subject for done in ended if done.result is not False}


def _fails(tests: Tests, name: str, _: Path) -> bool:
    use_impl(IMPL.parent)
    return tests.first_failure([name]) is not None


def _try(
    tests: Tests, change: Change, names: Sequence[str], seconds: float, folder: Path
) -> dict[str, str | None]:
    change.write(folder)
    use_impl(folder)
    try:
        importlib.import_module("impl")
    except Exception as error:
        return {"killer": f"the import of impl: {error!r}"}
    return {"killer": tests.first_failure(names, seconds)}
