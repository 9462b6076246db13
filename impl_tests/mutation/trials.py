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


def run(
    tests: Tests, lines: Lines, chosen: Sequence[Change], *, processes: int
) -> Iterator[Trial]:
    """Try every change; yield trials as they end."""
    kills: Counter[tuple[str, str]] = Counter()
    jobs = (_job(tests, change, lines, kills) for change in chosen)
    for count, done in enumerate(forks.run(jobs, processes=processes), 1):
        change = done.job.subject
        killer = "a hang or a crash" if done.result is None else done.result["killer"]
        if killer is not None:
            kills[change.file, killer] += 1
        yield Trial(change, killer, done.seconds, f"{count}/{len(chosen)}")


def _job(
    tests: Tests, change: Change, lines: Lines, kills: Counter[tuple[str, str]]
) -> forks.Job[Change]:
    own = f"impl_tests/test_{Path(change.file).stem.strip('_')}"
    names = sorted(
        lines.tests(change.file, change.line),
        key=lambda name: (
            -kills[change.file, name],
            own not in name,
            name in lines.unseen,
            lines.seconds[name],
        ),
    )
    return forks.Job(change, functools.partial(_try, tests, change, names))


def unfair(tests: Tests, killers: Iterable[str], *, processes: int) -> set[str]:
    """Those of these tests that fail on impl as it is, each the first of its process."""
    names = sorted(killers)
    jobs = (forks.Job(name, functools.partial(_fails, tests, name)) for name in names)
    ended = forks.run(jobs, processes=processes)
    return {done.job.subject for done in ended if done.result is not False}


def _fails(tests: Tests, name: str, _: Path) -> bool:
    use_impl(IMPL.parent)
    return tests.first_failure([name]) is not None


def _try(tests: Tests, change: Change, names: Sequence[str], home: Path) -> dict[str, str | None]:
    change.write(home)
    use_impl(home)
    try:
        importlib.import_module("impl")
    except Exception as error:
        return {"killer": f"its import: {error!r}"}
    return {"killer": tests.first_failure(names)}
