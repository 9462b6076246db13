"""Run jobs in forked processes, several at a time.

A forked process has all modules that this process has imported, so it starts fast. A job that
hangs or crashes ends only its own process.
"""

import faulthandler
import itertools
import json
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

import torch

#: Seconds without output after which a process counts as hung. With few examples no test takes as
#: long. The time limit of pytest would make each hang cost five minutes.
_TIME_LIMIT = 90
#: Seconds in which a process that hangs prints the stacks of its threads.
_SECONDS_FOR_STACKS = 5
#: Exit status of a process whose job raised an exception.
_JOB_RAISED = 70
_FORK = multiprocessing.get_context("fork")


@dataclass
class Job:
    """A function to call in its own process, and how the process has ended.

    Args:
        subject: Any object that tells the caller which job this is, such as the name of a test.
        function: The function. Its argument is a folder, which contains only the file "log" of
            the printed text; it returns data that JSON can represent.
        result: The function's return value; None if the process hung or crashed.
        log: The text that the process printed.
        exit_code: The exit status of the process, or the negative number of the signal that ended
            it.
        is_hung: Whether the process was killed, because it printed nothing for a long time. The
            log then has the stacks of its threads.
    """

    subject: Any
    function: Callable[[Path], Any]
    result: Any = None
    log: str = ""
    exit_code: int | None = None
    is_hung: bool = False


def run(jobs: Iterable[Job], *, processes: int, limit: float = _TIME_LIMIT) -> Iterator[Job]:
    """Run jobs; yield each job when it has ended.

    Args:
        jobs: The jobs. The next one is taken only when its process can start.
        processes: The number of jobs at a time.
        limit: Seconds without output after which a process counts as hung.

    Raises:
        RuntimeError: The function of a job raised an exception.
    """
    waiting = iter(jobs)
    running: dict[ForkProcess, _RunningJob] = {}
    try:
        while True:
            for job in itertools.islice(waiting, processes - len(running)):
                started = _RunningJob(job, limit)
                running[started.process] = started
            if not running:
                return
            connection.wait([process.sentinel for process in running], timeout=1)
            for process in [process for process, job in running.items() if job.has_ended()]:
                yield running.pop(process).join()
    finally:  # After an interrupt, some jobs still run.
        for started in running.values():
            started.kill()


class _RunningJob:
    """A job, its process, and the folder with its output and result."""

    def __init__(self, job: Job, limit: float) -> None:
        self._job, self._limit = job, limit
        self._folder = Path(tempfile.mkdtemp())
        (self._folder / "log").touch()
        sys.stdout.flush()
        self.process = _FORK.Process(target=_run_job, args=(job, self._folder))
        self.process.start()

    def has_ended(self) -> bool:
        """Return whether the process has ended; kill a process that hangs."""
        last_output = (self._folder / "log").stat().st_mtime
        if self.process.is_alive() and time.time() - last_output > self._limit:
            self._job.is_hung = True
            assert self.process.pid is not None
            os.kill(self.process.pid, signal.SIGABRT)  # `faulthandler` prints all stacks.
            self.process.join(_SECONDS_FOR_STACKS)
            self.kill()
            self.process.join()
        return not self.process.is_alive()

    def kill(self) -> None:
        """Kill the process and its children."""
        assert self.process.pid is not None
        self.process.kill()
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def join(self) -> Job:
        """Wait for the process, end its children, delete its folder, and return the job."""
        self.process.join()
        self.kill()
        path = self._folder / "result"
        job = self._job
        job.result = json.loads(path.read_text()) if path.exists() else None
        job.log = (self._folder / "log").read_text(errors="replace")
        shutil.rmtree(self._folder)
        if self.process.exitcode == _JOB_RAISED:
            raise RuntimeError(f"{job.subject}:\n{job.log}")
        job.exit_code = self.process.exitcode
        return job


def _run_job(job: Job, folder: Path) -> None:
    """Call the job's function in a forked process, and end the process."""
    os.setpgid(0, 0)  # The children of this process, such as ranks, end with it.
    with (folder / "log").open("a") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    faulthandler.enable(2)
    # After a fork PyTorch replaces its pool of threads at the next call of this function. Without
    # this call the threads of a backward make it, and two at a time end the process: "Invalid
    # thread pool!".
    torch.set_num_threads(torch.get_num_threads())
    status = _JOB_RAISED
    try:
        result = job.function(folder)
        # The file "result" appears only when its text is complete.
        (folder / "incomplete").write_text(json.dumps(result))
        (folder / "incomplete").rename(folder / "result")
        status = 0
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    # Skip the interpreter's shutdown: it waits for all threads, and a wrong impl may have a
    # thread that never ends.
    os._exit(status)
