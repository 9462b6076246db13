"""Trying changes: the tests of the changed line, the likeliest to fail first, until one does."""

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

#: Seconds that count beside a test's own, so that the quickest do not outweigh the likeliest.
_START = 0.2
#: The same for one whose file must be collected first.
_COLLECTION = 1
#: How much likelier a test becomes by each change near by that it has noticed.
_KNOWN = 10


@dataclass(frozen=True)
class Trial:
    """What the tests said of one change.

    Args:
        change: What was changed.
        killer: The test that failed, or how else the change showed; None if it did not.
        seconds: How long it took.
        position: Which of the changes it is, as ``1/9``.
    """

    change: Change
    killer: str | None
    seconds: float
    position: str

    def __str__(self) -> str:
        verdict = f"noticed by {self.killer}" if self.killer is not None else "SURVIVED"
        return f"[{self.position}] {self.change.name}  {verdict} ({self.seconds:.1f} s)"


class Kills:
    """Which tests have noticed which changes; the likeliest to notice one more come first."""

    def __init__(self) -> None:
        self._found: Counter[tuple[str, str]] = Counter()

    def add(self, change: Change, killer: str) -> None:
        """Count a change as noticed by a test."""
        self._found.update((scope, killer) for scope in _scopes(change))

    def order(self, change: Change, lines: Lines) -> list[str]:
        """The tests that may notice a change, those that do so soonest first."""
        tests = lines.tests(change.file, change.line)
        rounds = _rounds(sorted(tests, key=lambda name: (lines.seconds[name], name)))

        def effort(name: str) -> float:
            kills = sum(self._found[scope, name] for scope in _scopes(change))
            seconds = lines.seconds[name] + _preparation(change, name)
            return seconds * rounds[name] / (1 + _KNOWN * kills)

        return sorted(rounds, key=effort)


def _preparation(change: Change, name: str) -> float:
    """Seconds that are worth waiting for a test that is likelier to notice a change.

    The tests of private modules are collected in the process of the change, since they import
    impl. One that is named after the changed file is worth that, and comes first.
    """
    own = f"impl_tests/test_{Path(change.file).stem.strip('_')}"
    if name.startswith(own):
        return 0
    return _COLLECTION if name.startswith("impl_tests") else _START


def _rounds(names: Iterable[str]) -> dict[str, int]:
    """Number the cases of each test: one of every test tells more than many of one."""
    count: Counter[str] = Counter()
    rounds: dict[str, int] = {}
    for name in names:
        count.update([function := name.partition("[")[0]])
        rounds[name] = count[function]
    return rounds


def _scopes(change: Change) -> tuple[str, ...]:
    """Where a change is: a test that knows the function is likelier than one of the file."""
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
    """Try every change, each with tests for so many seconds; yield trials as they end."""
    jobs = (
        forks.Job(
            change, functools.partial(_try, tests, change, kills.order(change, lines), seconds)
        )
        for change in chosen
    )
    for count, done in enumerate(forks.run(jobs, processes=processes), 1):
        change = done.job.subject
        killer = "a hang or a crash" if done.result is None else done.result["killer"]
        if killer is not None:
            kills.add(change, killer)
        yield Trial(change, killer, done.seconds, f"{count}/{len(chosen)}")


def unfair(tests: Tests, killers: Iterable[str], *, processes: int) -> set[str]:
    """Those of these tests that fail on impl as it is, each the first of its process."""
    names = sorted(killers)
    jobs = (forks.Job(name, functools.partial(_fails, tests, name)) for name in names)
    ended = forks.run(jobs, processes=processes)
    return {done.job.subject for done in ended if done.result is not False}


def _fails(tests: Tests, name: str, _: Path) -> bool:
    use_impl(IMPL.parent)
    return tests.first_failure([name]) is not None


def _try(
    tests: Tests, change: Change, names: Sequence[str], seconds: float, home: Path
) -> dict[str, str | None]:
    change.write(home)
    use_impl(home)
    try:
        importlib.import_module("impl")
    except Exception as error:
        return {"killer": f"its import: {error!r}"}
    return {"killer": tests.first_failure(names, seconds)}
