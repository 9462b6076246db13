"""Run one process with a time limit and keep the end of its output."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Completed", "run"]

ROOT = Path(__file__).resolve().parents[2]
#: The number of bytes to keep of the output.
TAIL_BYTES = 6000


@dataclass(frozen=True)
class Completed:
    """The result of a process.

    Args:
        code: The exit status; None if it was killed at its limit.
        seconds: The duration.
        tail: The end of standard output and standard error.
    """

    code: int | None
    seconds: float
    tail: str


def run(
    command: Sequence[str], seconds: float, environment: Mapping[str, str], log: Path
) -> Completed:
    """Run ``command`` in the root of the checkout; kill it and its children after ``seconds``.

    Args:
        command: Program and arguments.
        seconds: The limit.
        environment: Additional environment variables.
        log: The file of the output.
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
        code = _wait(process, seconds)
    return Completed(code, time.monotonic() - start, _tail(log))


def _wait(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        # Also kill after SystemExit in this process. The system reuses the id of the process group
        # only after the call of wait.
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _tail(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - TAIL_BYTES))
        return file.read().decode(errors="replace")
