"""One process with a limit of time, and the end of what it printed."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Ended", "run"]

ROOT = Path(__file__).resolve().parents[2]
#: How many bytes of the output are kept.
LONGEST_TAIL = 6000


@dataclass(frozen=True)
class Ended:
    """How a process ended.

    Args:
        code: Its exit status; None if it was killed for its time.
        seconds: How long it ran.
        tail: The end of its output and errors.
    """

    code: int | None
    seconds: float
    tail: str


def run(
    command: Sequence[str], seconds: float, environment: Mapping[str, str], log: Path
) -> Ended:
    """Run ``command`` in the root of the checkout; kill it and its children after ``seconds``.

    Args:
        command: Program and arguments.
        seconds: The limit.
        environment: Variables beside those of this process.
        log: Where the output goes.
    """
    began = time.monotonic()
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env={**os.environ, **environment},
            start_new_session=True,
        )
        code = _wait(process, seconds)
    return Ended(code, time.monotonic() - began, _tail(log))


def _wait(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        # Also when this process is asked to end. As long as its first process has not been waited
        # for, nothing else can have the number of the group.
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _tail(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - LONGEST_TAIL))
        return file.read().decode(errors="replace")
