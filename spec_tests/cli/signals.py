"""The handlers of signals for a process that runs nothing else than a command."""

import os
import signal
from types import FrameType
from typing import NoReturn

__all__ = ["end_quietly"]

#: The exit status after Ctrl-C.
INTERRUPTED = 2


def end_quietly(command: str) -> None:
    """Print no traceback at Ctrl-C, or if the reader of the output, such as `head`, has ended."""
    signal.signal(signal.SIGINT, _interrupt)
    # During a run, a write to a worker that has ended must not end this process.
    if command in ("clauses", "draft") and hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)


def _interrupt(signal_number: int, frame: FrameType | None) -> NoReturn:
    os.write(2, b"interrupted\n")
    os._exit(INTERRUPTED)
