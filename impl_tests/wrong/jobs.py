"""Jobs that run in forked processes: the steps, and the verdicts when the process has ended."""

import math
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Ended", "Job", "Running", "Step"]

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


class Running:
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


def _run_and_exit(job: Job, function: Callable[[Job, Path], None], folder: Path) -> None:
    os.setpgid(0, 0)
    with (folder / "output").open("w") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    try:
        function(job, folder)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    # Skip the interpreter's shutdown: it waits for threads, and a perturbed call may hang.
    os._exit(0)
