"""Run tests of the suite with perturbations, in processes forked after one collection.

The process that collects the tests does not use the accelerator, so that it may fork.
"""

import gc
import importlib
import math
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from impl_tests.wrong import state, wrapping
from impl_tests.wrong.kinds import OTHER_SIGNATURE
from spec_tests.harness.conformance import clauses
from spec_tests.harness.conformance.verdicts import verdict_of, worse_verdict

__all__ = ["CHAPTERS", "Ended", "Job", "Step", "Suite", "collect"]

ROOT = Path(__file__).resolve().parents[2]
TARGET = "impl_tests.wrong.target"
#: The tests of a target in Python.
CHAPTERS = tuple(
    f"spec_tests/{name}"
    for name in (
        "comm",
        "comm_and_functions",
        "functions",
        "scatter_gather",
        "replicate",
        "parallel_apply",
        "data_parallel",
        "divergences",
        "distributed",
        "cpp_front_end/test_buckets.py",
        "cpp_front_end/test_equalities.py",
    )
)
#: The verdict of a test that fails without a perturbation because of an earlier one.
SPOILT = "spoilt"
#: Seconds without a new verdict after which a process counts as hung.
_TIME_LIMIT = 100.0


@dataclass(frozen=True)
class Step:
    """Tests to run with a perturbation. After the first that fails, no other test runs.

    Args:
        line: The perturbation, or `state.LOGGING` to record calls.
        tests: The node ids of the tests.
        group: Steps of one group are skipped after enough of them have failed.
    """

    line: str
    tests: Sequence[str]
    group: str = ""


@dataclass(frozen=True)
class Job:
    """Steps to run in one process.

    Args:
        steps: The steps.
        functions: The functions to wrap; None for all.
        enough: The number of failing steps after which other steps of the group are skipped.
        seconds: The processor time after which other steps of the group are skipped.
        log: The file to which calls are recorded.
        rechecks: Whether a test that has failed runs again without a perturbation. If it fails,
            the perturbation has spoilt the process: the verdict is `SPOILT`, and the job ends.
    """

    steps: Sequence[Step]
    functions: Iterable[str] | None
    enough: float = math.inf
    seconds: float = math.inf
    log: Path | None = None
    rechecks: bool = False


@dataclass
class Ended:
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

    def run(self, jobs: Iterable[Job], processes: int = 1) -> Iterator[Ended]:
        """Run jobs, each in a new process; yield each job when it ends."""
        waiting = iter(jobs)
        running: list[_Running] = []
        while True:
            for job in islice(waiting, processes - len(running)):
                running.append(_Running(job, self._run_in_child))
            if not running:
                return
            time.sleep(0.02)
            for process in [process for process in running if process.has_ended()]:
                running.remove(process)
                yield process.end()

    def _run_in_child(self, job: Job, folder: Path) -> None:
        os.environ[state.FILE] = str(folder / "active")
        os.environ[state.FUNCTIONS] = "*" if job.functions is None else ",".join(job.functions)
        os.environ[state.LOG] = str(job.log or folder / "log")
        lines = [step.line.split() for step in job.steps]
        os.environ[state.SIGNATURES] = ",".join(f for f, *kind in lines if OTHER_SIGNATURE in kind)
        state.set_active("")
        failed: Counter[str] = Counter()
        used: dict[str, float] = defaultdict(float)
        with (folder / "verdicts").open("a") as verdicts:
            for number, step in enumerate(job.steps):
                if failed[step.group] >= job.enough or used[step.group] > job.seconds:
                    continue
                started = _processor_time()
                for test in step.tests:
                    verdict = self._verdict(self._items[test], step.line)
                    verdicts.write(f"{number}\t{test}\t{verdict}\n")
                    verdicts.flush()
                    if verdict == "fail" and step.line != state.LOGGING:
                        failed[step.group] += 1
                        break
                used[step.group] += _processor_time() - started
                if job.rechecks and verdict == "fail" and self._fails_unchanged(test):
                    verdicts.write(f"{number}\t{test}\t{SPOILT}\n")
                    return

    def _fails_unchanged(self, test: str) -> bool:
        return self._verdict(self._items[test], "") == "fail"

    def _verdict(self, item: Any, line: str) -> str:
        state.set_active(f"{line}{item.nodeid}" if line == state.LOGGING else line)
        # The next item is in another file, so that only fixtures of the session are kept.
        following = next((end for end in self._ends if end.path != item.path), None)
        item._initrequest()
        found: str | None = None
        try:
            for report in runtestprotocol(item, log=False, nextitem=following):
                verdict = verdict_of(report)
                found = worse_verdict(found, verdict) if verdict else found
                if report.failed:
                    print(report.nodeid, report.longreprtext, sep="\n", flush=True)
        finally:
            state.set_active("")
            state.undo()
        return found or "not-run"


class _Running:
    """The process of a job, and the folder with its output and verdicts."""

    def __init__(self, job: Job, function: Callable[[Job, Path], None]) -> None:
        self._job = job
        self._folder = Path(tempfile.mkdtemp())
        self._verdicts = self._folder / "verdicts"
        self._verdicts.touch()
        self._status: int | None = None
        sys.stdout.flush()
        self._process = os.fork()
        if not self._process:
            _run_and_exit(job, function, self._folder)

    def has_ended(self) -> bool:
        """Return whether the process has ended; kill a process that hangs."""
        ended, status = os.waitpid(self._process, os.WNOHANG)
        if ended:
            self._status = os.waitstatus_to_exitcode(status)
        elif time.time() - self._verdicts.stat().st_mtime > _TIME_LIMIT:
            self._kill_group()
            os.waitpid(self._process, 0)
            self._status = -signal.SIGKILL
        return self._status is not None

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process, signal.SIGKILL)

    def end(self) -> Ended:
        """Return the verdicts, end other processes of the trial and delete the folder."""
        self._kill_group()  # ranks of a process group
        lines = [line.split("\t") for line in self._verdicts.read_text().split("\n")[:-1]]
        verdicts = [(int(number), test, verdict) for number, test, verdict in lines]
        output = (self._folder / "output").read_text(errors="replace")[-4000:]
        shutil.rmtree(self._folder)
        return Ended(self._job, verdicts, self._status or 0, output)


def _processor_time() -> float:
    """Return the processor time of this process and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _run_and_exit(job: Job, function: Callable[[Job, Path], None], folder: Path) -> None:
    os.setpgid(0, 0)
    with (folder / "output").open("w") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    sys.stdout = sys.stderr = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - pytest has replaced them
    try:
        function(job, folder)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    # Skip the interpreter's shutdown: it waits for threads, and a perturbed call may hang.
    os._exit(0)


class _Plugin:
    """Calls a function in place of running the collected tests."""

    def __init__(self, function: Callable[[Suite], None]) -> None:
        self._function = function

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        gc.freeze()  # pytest collects garbage after each test
        self._function(Suite(session))
        return True


def collect(function: Callable[[Suite], None], *options: str) -> int:
    """Collect the suite in this process and call ``function`` with it; return pytest's status.

    Args:
        function: A function of the collected suite.
        options: Options and files for pytest.
    """
    os.chdir(ROOT)
    # Imports before the forks save each process a second.
    for name in ("torch.fx.experimental.symbolic_shapes", "numpy", "hypothesis"):
        importlib.import_module(name)
    deque(wrapping.functions(wrapping.TARGET), maxlen=0)
    arguments = ["-q", "--tb=line", "-p", "no:cacheprovider", f"--target={TARGET}"]
    arguments += ["--hypothesis-profile=perturbations", "--accelerator=sim"]
    return int(pytest.main([*arguments, *options], plugins=[_Plugin(function)]))
