"""Call functions in forked processes, several at a time.

A forked process has all modules that this process has imported, so it starts fast. A function that
crashes, or ends its process, ends no other one.
"""

import faulthandler
import itertools
import multiprocessing
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from multiprocessing import connection
from multiprocessing.context import ForkProcess
from pathlib import Path

import torch

#: Exit status of a process whose function raised an exception.
_RAISED = 70
_FORK = multiprocessing.get_context("fork")


def run(
    functions: Mapping[str, Callable[[], None]], *, processes: int
) -> Iterator[tuple[str, str]]:
    """Call each function in a process; yield its name and the printed text when it has ended.

    Args:
        functions: The functions by name.
        processes: The number of functions at a time.

    Raises:
        RuntimeError: A function raised an exception.
    """
    waiting = iter(functions.items())
    running: dict[Path, ForkProcess] = {}  # By the file with the printed text.
    with tempfile.TemporaryDirectory() as folder:
        try:
            while True:
                for name, function in itertools.islice(waiting, processes - len(running)):
                    log = Path(folder, name)
                    sys.stdout.flush()
                    running[log] = _FORK.Process(target=_call, args=(function, log))
                    running[log].start()
                if not running:
                    return
                # A child of a process keeps the sentinel open, so look again after a second.
                connection.wait([process.sentinel for process in running.values()], timeout=1)
                for log in [each for each, process in running.items() if not process.is_alive()]:
                    process = running.pop(log)
                    _end(process)
                    text = log.read_text(errors="replace")
                    if process.exitcode == _RAISED:
                        raise RuntimeError(f"{log.name}:\n{text}")
                    yield log.name, text
        finally:  # After an interrupt, some functions still run.
            for process in running.values():
                _end(process)


def _end(process: ForkProcess) -> None:
    """End a process, and its children."""
    assert process.pid is not None
    process.kill()
    process.join()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _call(function: Callable[[], None], log: Path) -> None:
    """Call a function in a forked process, and end the process."""
    os.setpgid(0, 0)  # The children of this process, such as ranks, end with it.
    with log.open("w") as file:
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
