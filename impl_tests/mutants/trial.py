"""Running the suite on mutants, several at a time, each in a process of its own.

The processes are forked from one that has imported torch and pytest but has touched no device.
"""

import functools
import gc
import importlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from impl_tests import forks
from impl_tests.mutants import Mutant
from spec_tests.harness.conformance.verdicts import ERRORS, by_clause, read

ROOT = Path(__file__).resolve().parents[2]
#: Exit codes of pytest that come with verdicts: all passed, some failed.
_RAN = (0, 1)
#: What every trial would import for itself, a second of its time, but none of what it judges by.
_SHARED = ("torch.fx.experimental.symbolic_shapes", "numpy", "hypothesis")


@dataclass(frozen=True)
class Trial:
    """What the suite said of one mutant.

    Args:
        mutant: What was tried.
        verdicts: One a clause; None if the process hung or crashed in a test.
        log: What pytest printed.
        seconds: How long it took.
    """

    mutant: Mutant
    verdicts: Mapping[str, str] | None
    log: str
    seconds: float

    @property
    def survived(self) -> tuple[str, ...]:
        """The clauses that the mutant breaks and whose tests passed all the same.

        A hang or a crash is a failure of all tests.
        """
        if self.verdicts is None:
            return ()
        return tuple(name for name in self.mutant.breaks if self.verdicts.get(name) not in ERRORS)


def tests_by_clause(names: Iterable[str]) -> dict[str, list[str]]:
    """The node ids of the clauses' tests, from one collection in a process of its own.

    Args:
        names: The clauses.

    Raises:
        RuntimeError: The suite cannot be collected.
    """
    job = forks.Job("the collection", functools.partial(_collect, sorted(set(names))))
    (done,) = forks.run([job], processes=1)
    if done.result is None:
        raise RuntimeError("the suite could not be collected: run pytest --collect-only")
    found: dict[str, list[str]] = done.result
    return found


def run(
    mutants: Iterable[Mutant],
    tests: Mapping[str, Sequence[str]],
    *,
    processes: int,
    options: Sequence[str] = (),
) -> Iterator[Trial]:
    """Try every mutant with the tests of the clauses that it breaks; yield trials as they end.

    Args:
        mutants: What to try.
        tests: The node ids of every clause's tests.
        processes: How many to try at a time.
        options: More of pytest's.

    Raises:
        RuntimeError: A mutant cannot be imported: it would fail every test and prove nothing.
    """
    for name in _SHARED:
        importlib.import_module(name)
    gc.freeze()  # pytest collects garbage in every trial; that of the imports is none
    jobs = [
        forks.Job(each, functools.partial(_try, each, [*_chosen(each, tests), *options]))
        for each in mutants
    ]
    for done in forks.run(jobs, processes=processes):
        yield Trial(done.job.subject, done.result, done.log, done.seconds)


def _chosen(mutant: Mutant, tests: Mapping[str, Sequence[str]]) -> list[str]:
    return sorted({node for name in mutant.breaks for node in tests.get(name, ())})


def _try(mutant: Mutant, arguments: Sequence[str], home: Path) -> dict[str, str]:
    mutant.write(home)
    sys.path.insert(0, str(home))
    importlib.import_module(mutant.package)
    path = home / "verdicts.jsonl"
    options = ["--target", mutant.package, "--verdicts", str(path), "--hypothesis-profile=mutants"]
    status = _pytest([*arguments, *options])
    if status not in _RAN:
        raise RuntimeError(f"the suite did not run on {mutant.name}: pytest exited with {status}")
    return by_clause(read(path))


def _collect(names: Sequence[str], _: Path) -> dict[str, list[str]]:
    plugin = _Collector()
    _pytest(["spec_tests", "--collect-only", *(f"--clause={name}" for name in names)], plugin)
    return plugin.found


class _Collector:
    """Notes which test names which clause."""

    def __init__(self) -> None:
        self.found: dict[str, list[str]] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            for marker in item.iter_markers("clause"):
                self.found.setdefault(marker.args[0], []).append(item.nodeid)


def _pytest(arguments: list[str], *plugins: object) -> int:
    os.chdir(ROOT)
    options = ["-q", "-p", "no:cacheprovider"]
    return int(pytest.main([*options, *arguments], plugins=list(plugins)))
