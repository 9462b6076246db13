"""Run the suite on mutants, several at a time, each in a new process.

The processes are forked from a process that has imported torch and pytest but used no device.
"""

import functools
import gc
import importlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from impl_tests import forks
from impl_tests.mutants import Mutant
from spec_tests.harness.conformance.verdicts import ERRORS, by_clause, read

ROOT = Path(__file__).resolve().parents[2]
#: Exit codes of a complete pytest run: 0 if all tests passed, 1 if a test failed.
_COMPLETE_EXIT_CODES = (0, 1)
#: Modules with a slow import. An import before the fork saves each trial a second.
_PRELOADED = ("torch.fx.experimental.symbolic_shapes", "numpy", "hypothesis")


@dataclass(frozen=True)
class Trial:
    """The result of the suite on one mutant.

    Args:
        mutant: The mutant.
        verdicts: Clause id -> verdict, such as ``fail``; None if a test hung or crashed.
        log: The output of pytest.
        seconds: The duration of the trial in seconds.
    """

    mutant: Mutant
    verdicts: Mapping[str, str] | None
    log: str
    seconds: float

    @property
    def survived_clauses(self) -> tuple[str, ...]:
        """The ids of the broken clauses whose tests passed; empty after a hang or a crash."""
        if self.verdicts is None:
            return ()
        return tuple(name for name in self.mutant.breaks if self.verdicts.get(name) not in ERRORS)


def collect_tests(clause_ids: Iterable[str]) -> dict[str, list[str]]:
    """Collect the suite in a new process; return, for each clause, the node ids of its tests.

    Args:
        clause_ids: The ids of the clauses.

    Raises:
        RuntimeError: The suite cannot be collected.
    """
    job = forks.Job("the collection", functools.partial(_collect, sorted(set(clause_ids))))
    (ended,) = forks.run([job], processes=1)
    if ended.result is None:
        raise RuntimeError("the suite could not be collected: run pytest --collect-only")
    tests: dict[str, list[str]] = ended.result
    return tests


def run(
    mutants: Iterable[Mutant],
    tests: Mapping[str, Sequence[str]],
    *,
    processes: int,
    options: Sequence[str] = (),
) -> Iterator[Trial]:
    """Run the tests of the broken clauses on each mutant; yield each trial when it ends.

    Args:
        mutants: The mutants.
        tests: Clause id -> node ids of its tests.
        processes: The number of mutants that run at the same time.
        options: Further options of pytest.

    Raises:
        RuntimeError: A mutant cannot be imported, so it would fail every test and prove nothing.
    """
    for name in _PRELOADED:
        importlib.import_module(name)
    # pytest collects garbage in every trial. gc.freeze excludes the imported modules from it.
    gc.freeze()
    jobs = [
        forks.Job(
            mutant,
            functools.partial(
                _run_suite, mutant, [*_tests_of(mutant, tests), *mutant.options, *options]
            ),
        )
        for mutant in mutants
    ]
    for ended in forks.run(jobs, processes=processes):
        yield Trial(ended.job.subject, ended.result, ended.log, ended.seconds)


def _tests_of(mutant: Mutant, tests: Mapping[str, Sequence[str]]) -> list[str]:
    return sorted({node for name in mutant.breaks for node in tests.get(name, ())})


def _run_suite(mutant: Mutant, arguments: Sequence[str], folder: Path) -> dict[str, str]:
    """Run pytest with ``arguments`` on the mutant; return the verdict of each clause."""
    mutant.write(folder)
    importlib.import_module(mutant.package)
    path = folder / "verdicts.jsonl"
    options = ["--target", mutant.package, "--verdicts", str(path), "--hypothesis-profile=mutants"]
    status = _run_pytest([*arguments, *options])
    if status not in _COMPLETE_EXIT_CODES:
        raise RuntimeError(f"the suite did not run on {mutant.name}: pytest exited with {status}")
    return by_clause(read(path))


def _collect(clause_ids: Sequence[str], _: Path) -> dict[str, list[str]]:
    plugin = _Collector()
    clauses = [f"--clause={name}" for name in clause_ids]
    _run_pytest(["spec_tests", "--collect-only", *clauses], plugin)
    return plugin.tests


class _Collector:
    """A pytest plugin that records the node ids of the collected tests of each clause."""

    def __init__(self) -> None:
        self.tests: dict[str, list[str]] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            for marker in item.iter_markers("clause"):
                self.tests.setdefault(marker.args[0], []).append(item.nodeid)


def _run_pytest(arguments: list[str], *plugins: object) -> int:
    """Run pytest in this process; return its exit code."""
    os.chdir(ROOT)
    options = ["-q", "-p", "no:cacheprovider"]
    return int(pytest.main([*options, *arguments], plugins=list(plugins)))
