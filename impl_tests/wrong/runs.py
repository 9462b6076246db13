"""Run tests of the suite with perturbations, in processes forked after one collection."""

import importlib
import os
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from impl_tests import collected, forks
from impl_tests.wrong import DEVICES, FAULT, state, wrapping
from impl_tests.wrong.kinds import OTHER_SIGNATURE
from spec_tests import simulator
from spec_tests.harness.conformance import clauses
from spec_tests.harness.conformance.verdicts import verdict_of, worse_verdict

__all__ = ["EndedJob", "Job", "Step", "Suite", "collect"]

TARGET = "impl_tests.wrong.target"
#: The beginning of a line of the log with a verdict.
_MARK = "verdict of the suite"


@dataclass(frozen=True)
class Step:
    """Tests to run with a perturbation. After the first that fails, no other test runs.

    Args:
        line: The perturbation, or `state.LOGGING` to record calls.
        tests: The node ids of the tests.
        clause: The clause of the tests.
    """

    line: str
    tests: Sequence[str]
    clause: str = ""


@dataclass(frozen=True)
class Job:
    """Steps to run in one process.

    Args:
        steps: The steps.
        functions: The functions to wrap; None for all.
        log: The file to which calls are recorded.
    """

    steps: Sequence[Step]
    functions: Iterable[str] | None
    log: Path | None = None


@dataclass
class EndedJob:
    """A job that has ended.

    Args:
        job: The job.
        verdicts: The number of the step, the test and the verdict of each test that ran.
        status: The exit status of the process; -9 if it hung and was killed.
        output: The end of the text that the process printed.
    """

    job: Job
    verdicts: list[tuple[int, str, str]] = field(default_factory=list)
    status: int = 0
    output: str = ""


class Suite:
    """The collected tests.

    Args:
        session: The session of pytest, after the collection.
    """

    def __init__(self, session: pytest.Session) -> None:
        self._items = {item.nodeid: item for item in session.items}
        self._ends = session.items[-1], session.items[0]
        #: Node id of each test -> the ids of its clauses.
        self.clauses = {name: clauses.clauses_of_test(i) for name, i in self._items.items()}

    def run(self, jobs: Iterable[Job], processes: int = 1) -> Iterator[EndedJob]:
        """Run jobs, each in a new process; yield each job when it ends."""
        waiting = (forks.Job(job, partial(self._run_in_child, job)) for job in jobs)
        for ended in forks.run(waiting, processes=processes):
            lines = [line.split("\t") for line in ended.log.splitlines() if _is_verdict(line)]
            verdicts = [(int(number), test, verdict) for _, number, test, verdict in lines]
            status = ended.exit_code or 0
            yield EndedJob(ended.job.subject, verdicts, status, ended.log[-4000:])

    def _run_in_child(self, job: Job, folder: Path) -> None:
        sys.stdout = sys.stderr = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - pytest has replaced them
        try:
            self._run_steps(job, folder)
        except BaseException:  # An error of a perturbed call may make pytest itself fail.
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)

    def _run_steps(self, job: Job, folder: Path) -> None:
        os.environ[state.FILE] = str(folder / "active")
        os.environ[state.FUNCTIONS] = "*" if job.functions is None else ",".join(job.functions)
        os.environ[state.LOG] = str(job.log or folder / "log")
        lines = [step.line.split() for step in job.steps]
        os.environ[state.SIGNATURES] = ",".join(f for f, *kind in lines if OTHER_SIGNATURE in kind)
        state.set_active("")
        for number, step in enumerate(job.steps):
            for test in step.tests:
                verdict = self._verdict(self._items[test], step.line)
                _write_verdict(folder, number, test, verdict)
                if verdict == "fail" and step.line != state.LOGGING:
                    break

    def _verdict(self, item: Any, line: str) -> str:
        state.set_active(f"{line}{item.nodeid}" if line == state.LOGGING else line)
        # The next item is in another file, so that only fixtures of the session are kept.
        following = next((end for end in self._ends if end.path != item.path), None)
        found: str | None = None
        try:
            _enable_fault(item.config, line)
            for report in collected.run_test(item, following):
                verdict = verdict_of(report)
                found = worse_verdict(found, verdict) if verdict else found
                if report.failed:
                    print(report.nodeid, report.longreprtext, sep="\n", flush=True)
        finally:
            state.set_active("")
            state.undo()
        return found or "not-run"


def _enable_fault(config: pytest.Config, line: str) -> None:
    """Enable the fault of simulated devices that a line names, if any, until `state.undo`."""
    function, _, kind = line.partition(" ")
    if function != DEVICES:
        return
    from spec_tests.harness.pytest_plugin.hooks import capabilities_of  # pytest imports it first

    # A run looks for missing features once. The devices have all features at that time.
    capabilities_of(config)
    switches = ExitStack()
    switches.enter_context(simulator.fault(kind.split()[0].removeprefix(FAULT)))
    state.later(switches.close)


def _write_verdict(folder: Path, number: int, test: str, verdict: str) -> None:
    """Append a line to the log, from which :meth:`Suite.run` reads it, also after a crash."""
    with (folder / "log").open("a") as log:  # pytest redirects the standard output
        log.write(f"\n{_MARK}\t{number}\t{test}\t{verdict}\n")


def _is_verdict(line: str) -> bool:
    return line.startswith(f"{_MARK}\t")


def collect(function: Callable[[Suite], None], *options: str) -> int:
    """Collect the suite in this process and call ``function`` with it; return pytest's status.

    Args:
        function: A function of the collected suite.
        options: Options and files for pytest.
    """
    # Imports before the forks save each process a second.
    for name in ("torch.fx.experimental.symbolic_shapes", "numpy"):
        importlib.import_module(name)
    deque(wrapping.functions(wrapping.TARGET), maxlen=0)
    return collected.call_with_session(
        lambda session: function(Suite(session)),
        f"--target={TARGET}",
        "--hypothesis-profile=perturbations",
        *options,
    )
