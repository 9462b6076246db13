"""Runs of the suite on mutants, several at a time, each in a new process.

The processes are forked from one that has imported torch and pytest but has used no device.
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
#: Exit codes of pytest after a complete run: all tests passed, or some failed.
_COMPLETE = (0, 1)
#: Slow imports of every trial, done once before the fork; they save a second a trial.
_PRELOADED = ("torch.fx.experimental.symbolic_shapes", "numpy", "hypothesis")


@dataclass(frozen=True)
class Trial:
    """The verdicts on one mutant.

    Args:
        mutant: The mutant.
        verdicts: The verdict by clause; None if the process hung or crashed in a test.
        log: The output of pytest.
        seconds: The duration of the trial.
    """

    mutant: Mutant
    verdicts: Mapping[str, str] | None
    log: str
    seconds: float

    @property
    def survived(self) -> tuple[str, ...]:
        """The broken clauses whose tests passed. A hang or a crash fails all tests."""
        if self.verdicts is None:
            return ()
        return tuple(name for name in self.mutant.breaks if self.verdicts.get(name) not in ERRORS)


def collect_tests(names: Iterable[str]) -> dict[str, list[str]]:
    """Return the node ids of each clause's tests, collected in a new process.

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
    """Run the tests of the broken clauses on each mutant; yield trials as they end.

    Args:
        mutants: The mutants.
        tests: The node ids of each clause's tests.
        processes: The number of mutants to try at a time.
        options: Further options of pytest.

    Raises:
        RuntimeError: A mutant cannot be imported, so it would fail every test and prove nothing.
    """
    for name in _PRELOADED:
        importlib.import_module(name)
    gc.freeze()  # pytest runs the garbage collector in every trial; it need not scan the imports.
    jobs = [
        forks.Job(mutant, functools.partial(_try, mutant, [*_chosen(mutant, tests), *options]))
        for mutant in mutants
    ]
    for done in forks.run(jobs, processes=processes):
        yield Trial(done.job.subject, done.result, done.log, done.seconds)


def _chosen(mutant: Mutant, tests: Mapping[str, Sequence[str]]) -> list[str]:
    return sorted({node for name in mutant.breaks for node in tests.get(name, ())})


def _try(mutant: Mutant, arguments: Sequence[str], folder: Path) -> dict[str, str]:
    mutant.write(folder)
    sys.path.insert(0, str(folder))
    importlib.import_module(mutant.package)
    path = folder / "verdicts.jsonl"
    options = ["--target", mutant.package, "--verdicts", str(path), "--hypothesis-profile=mutants"]
    status = _pytest([*arguments, *options])
    if status not in _COMPLETE:
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
