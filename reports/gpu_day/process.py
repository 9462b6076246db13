"""Run one process with a time limit, and keep the end of its output."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ProcessResult", "run"]

ROOT = Path(__file__).resolve().parents[2]
#: Number of bytes at the end of the output that are kept.
TAIL_BYTES = 6000


@dataclass(frozen=True)
class ProcessResult:
    """The result of a process that ended or was killed.

    Args:
        code: The exit status; None if the process was killed at its time limit.
        seconds: The seconds that the process ran.
        tail: The end of standard output and standard error.
    """

    code: int | None
    seconds: float
    tail: str


def run(
    command: Sequence[str], seconds: float, environment: Mapping[str, str], log: Path
) -> ProcessResult:
    """Run ``command`` in the checkout's root folder; kill it and its children after ``seconds``.

    Args:
        command: Program and arguments.
        seconds: The time limit.
        environment: Additional environment variables.
        log: The file for the output.
    """
    start = time.monotonic()
    with log.open("wb") as file:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env={**os.environ, **environment},
            start_new_session=True,
        )
        code = _wait_or_kill(process, seconds)
    return ProcessResult(code, time.monotonic() - start, _read_tail(log))


def _wait_or_kill(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        # A SystemExit here must kill the process and its children, too. Until wait() the id of the
        # process group is not reused, so killpg cannot hit another group.
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _read_tail(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - TAIL_BYTES))
        return file.read().decode(errors="replace")
