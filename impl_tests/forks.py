"""Jobs done in processes forked from this one, several at a time.

A fork has everything that this process has imported and collected, which saves most of the start;
and a job that hangs or crashes takes nothing with it.
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

#: Seconds after which a process that prints nothing is taken to hang. A test has a limit of its
#: own, which is less, but none for its teardown after that.
_PATIENCE = 90
#: Exit status of a process whose work raised an exception.
_RAISED = 70
_FORK = multiprocessing.get_context("fork")
T = TypeVar("T")


@dataclass(frozen=True)
class Job(Generic[T]):
    """What to do in a process of its own.

    Args:
        subject: What the job is about.
        work: Called there with an empty folder; its result must be plain
            data, and an exception ends the run.
    """

    subject: T
    work: Callable[[Path], Any]


@dataclass(frozen=True)
class Done(Generic[T]):
    """A job that has ended.

    Args:
        job: The job.
        result: What its work returned; None if the process hung or crashed.
        log: What was printed meanwhile.
        seconds: How long it took.
    """

    job: Job[T]
    result: Any
    log: str
    seconds: float


def run(jobs: Iterable[Job[T]], *, processes: int) -> Iterator[Done[T]]:
    """Do ``jobs``, ``processes`` at a time; yield them as they end.

    A job is taken from ``jobs`` only when its process is about to start.

    Raises:
        RuntimeError: The work of a job raised an exception.
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
            yield running.pop(process).done()


class _Running(Generic[T]):
    """One process at work."""

    def __init__(self, job: Job[T]) -> None:
        self._job = job
        self._home = Path(tempfile.mkdtemp())
        (self._home / "log").touch()
        self._start = time.monotonic()
        sys.stdout.flush()
        self.process = _FORK.Process(target=_work, args=(job, self._home))
        self.process.start()

    def has_ended(self) -> bool:
        printed = (self._home / "log").stat().st_mtime
        if self.process.is_alive() and time.time() - printed > _PATIENCE:
            self.process.kill()
            self.process.join()
        return not self.process.is_alive()

    def done(self) -> Done[T]:
        self.process.join()
        path = self._home / "result"
        result = json.loads(path.read_text()) if path.exists() else None
        log = (self._home / "log").read_text(errors="replace")
        shutil.rmtree(self._home)
        if self.process.exitcode == _RAISED:
            raise RuntimeError(f"{self._job.subject}:\n{log}")
        return Done(self._job, result, log, time.monotonic() - self._start)


def _work(job: Job[Any], home: Path) -> None:
    with (home / "log").open("w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    status = _RAISED
    try:
        result = job.work(home)
        (home / "part").write_text(json.dumps(result))
        (home / "part").rename(home / "result")
        status = 0
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    # Without the usual end of a process, in which a thread of a wrong impl may hang.
    os._exit(status)
