"""Execution of jobs in forked processes, several at a time.

A fork has all modules that this process has imported, so it starts fast. A job that hangs or
crashes ends only its own process.
"""

import itertools
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any, Generic, TypeVar

#: Seconds without output after which a process counts as hung. The time limit of a test is
#: shorter, but does not cover its teardown.
_PATIENCE = 90
#: Exit status of a process whose function raised an exception.
_RAISED = 70
_FORK = multiprocessing.get_context("fork")
T = TypeVar("T")


@dataclass(frozen=True)
class Job(Generic[T]):
    """A function to call in its own process.

    Args:
        subject: The object that the job examines, for the caller's use.
        work: The function. Its argument is an empty folder, and its result must be JSON data.
    """

    subject: T
    work: Callable[[Path], Any]


@dataclass(frozen=True)
class JobResult(Generic[T]):
    """The result of a job that has ended.

    Args:
        job: The job.
        result: The return value of ``work``; None if the process hung or crashed.
        log: The output of the process.
        seconds: The duration.
    """

    job: Job[T]
    result: Any
    log: str
    seconds: float


def run(jobs: Iterable[Job[T]], *, processes: int) -> Iterator[JobResult[T]]:
    """Run ``jobs`` in up to ``processes`` processes; yield each result when its job ends.

    The next job is taken from ``jobs`` only when its process can start.

    Raises:
        RuntimeError: The function of a job raised an exception.
    """
    waiting = iter(jobs)
    running: dict[ForkProcess, _Running[T]] = {}
    while True:
        for job in itertools.islice(waiting, processes - len(running)):
            entry = _Running(job)
            running[entry.process] = entry
        if not running:
            return
        connection.wait([process.sentinel for process in running], timeout=1)
        for process in [each for each, entry in running.items() if entry.has_ended()]:
            yield running.pop(process).join()


class _Running(Generic[T]):
    """A running process with its folder."""

    def __init__(self, job: Job[T]) -> None:
        self._job = job
        self._folder = Path(tempfile.mkdtemp())
        (self._folder / "log").touch()
        self._start = time.monotonic()
        sys.stdout.flush()
        self.process = _FORK.Process(target=_work, args=(job, self._folder))
        self.process.start()

    def has_ended(self) -> bool:
        printed = (self._folder / "log").stat().st_mtime
        if self.process.is_alive() and time.time() - printed > _PATIENCE:
            self.process.kill()
            self.process.join()
        return not self.process.is_alive()

    def join(self) -> JobResult[T]:
        self.process.join()
        path = self._folder / "result"
        result = json.loads(path.read_text()) if path.exists() else None
        log = (self._folder / "log").read_text(errors="replace")
        shutil.rmtree(self._folder)
        if self.process.exitcode == _RAISED:
            raise RuntimeError(f"{self._job.subject}:\n{log}")
        return JobResult(self._job, result, log, time.monotonic() - self._start)


def _work(job: Job[Any], folder: Path) -> None:
    with (folder / "log").open("w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    status = _RAISED
    try:
        result = job.work(folder)
        (folder / "part").write_text(json.dumps(result))
        (folder / "part").rename(folder / "result")
        status = 0
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    # Skips the interpreter's shutdown, in which a thread of a mutated impl may hang.
    os._exit(status)
