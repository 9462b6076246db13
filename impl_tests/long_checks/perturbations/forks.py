"""Call functions in forked processes, several at a time.

A forked process has all modules that this process has imported, so it starts fast. A function that
hangs or crashes ends only its own process.
"""

import faulthandler
import itertools
import multiprocessing
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from multiprocessing import connection
from multiprocessing.context import ForkProcess
from pathlib import Path

import torch

#: Seconds without output after which a process counts as hung. With few examples no test takes as
#: long. The time limit of pytest would make each hang cost five minutes.
_SILENT_SECONDS = 90
#: Seconds in which a process that hangs prints the stacks of its threads.
_SECONDS_FOR_STACKS = 5
#: Exit status of a process whose function raised an exception.
_RAISED = 70
_FORK = multiprocessing.get_context("fork")


def run(
    functions: Mapping[str, Callable[[], None]], *, processes: int
) -> Iterator[tuple[str, str]]:
    """Call each function in a process; yield its name and the printed text when it has ended.

    Args:
        functions: The functions by name. One that prints nothing for a long time is killed; its
            text then has the stacks of its threads.
        processes: The number of functions at a time.

    Raises:
        RuntimeError: A function raised an exception.
    """
    waiting = iter(functions.items())
    running: dict[ForkProcess, _Running] = {}
    with tempfile.TemporaryDirectory() as folder:
        try:
            while True:
                for name, function in itertools.islice(waiting, processes - len(running)):
                    started = _Running(name, function, Path(folder) / name.replace("/", "_"))
                    running[started.process] = started
                if not running:
                    return
                connection.wait([process.sentinel for process in running], timeout=1)
                for process in [each for each, job in running.items() if job.has_ended()]:
                    yield running.pop(process).join()
        finally:  # After an interrupt, some functions still run.
            for started in running.values():
                started.kill()


class _Running:
    """A function in its process, and the file with its printed text."""

    def __init__(self, name: str, function: Callable[[], None], log: Path) -> None:
        self._name, self._log = name, log
        log.touch()
        sys.stdout.flush()
        self.process = _FORK.Process(target=_call, args=(function, log))
        self.process.start()

    def has_ended(self) -> bool:
        """Return whether the process has ended; kill a process that hangs."""
        is_hung = time.time() - self._log.stat().st_mtime > _SILENT_SECONDS
        if self.process.is_alive() and is_hung:
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

    def join(self) -> tuple[str, str]:
        """Wait for the process, and end its children; return the name and the printed text."""
        self.process.join()
        self.kill()
        text = self._log.read_text(errors="replace")
        if self.process.exitcode == _RAISED:
            raise RuntimeError(f"{self._name}:\n{text}")
        return self._name, text


def _call(function: Callable[[], None], log: Path) -> None:
    """Call a function in a forked process, and end the process."""
    os.setpgid(0, 0)  # The children of this process, such as ranks, end with it.
    with log.open("a") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    faulthandler.enable(2)
    # After a fork PyTorch replaces its pool of threads at the next call of this function. Without
    # this call the threads of a backward make it, and two at a time end the process: "Invalid
    # thread pool!".
    torch.set_num_threads(torch.get_num_threads())
    status = 0
    try:
        function()
    except BaseException:
        traceback.print_exc()
        status = _RAISED
    sys.stdout.flush()
    # Skip the interpreter's shutdown: it waits for all threads, and a wrong impl may have a
    # thread that never ends.
    os._exit(status)
