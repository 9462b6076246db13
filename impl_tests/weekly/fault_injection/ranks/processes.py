"""The processes of a case, one for each rank, and their messages."""

import multiprocessing
import os
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Iterable, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from .lost_ranks import RETURNING, SIZE, LostRanks
from .rank import SETUP_LIMIT, make_store, run_rank

__all__ = ["Rank", "run_case"]

#: Seconds from the first fault, or from the resumption of lost ranks, to the end of the ranks. A
#: rank that has not ended then counts as hung.
_HANG_LIMIT = 23.0
_FORK = multiprocessing.get_context("fork")
#: The stores whose server is in this process.
_SERVERS: list[Any] = []


class Rank:
    """The process of a rank, and how it ends.

    Args:
        number: The rank.
        process: The process.
        pipe: The pipe to the process.

    Attributes:
        is_ready: Whether the rank joined the process group.
        fault_time: The time of the rank's fault, in seconds; None if it did not occur.
        error: The class of the error that ended the rank; an empty text if it ran all steps.
        text: The text of the error.
        end_time: The time of the error, in seconds; None if the rank reported no end.
        exit_code: The exit status; None if the process did not end.
    """

    is_ready = False
    fault_time: float | None = None
    error = text = ""
    end_time: float | None = None
    exit_code: int | None = None

    def __init__(self, number: int, process: Any, pipe: Connection) -> None:
        self.number, self.process, self._pipe, self._is_open = number, process, pipe, True

    def receive(self) -> None:
        """Receive all messages that have arrived, and the exit status."""
        # Read the exit status first. If the process has ended, the pipe then has all its messages.
        exit_code = self.process.exitcode
        try:
            while self._is_open and self._pipe.poll():
                for name, value in self._pipe.recv().items():
                    setattr(self, name, value)
        except (EOFError, ConnectionError):
            self._is_open = False
        self.exit_code = exit_code

    def resume(self) -> None:
        """Resume a rank that is stopped or waits."""
        os.kill(self.process.pid, signal.SIGCONT)
        if self._is_open:
            self._pipe.send(None)


def run_case(case: LostRanks) -> list[Rank]:
    """Run ``case``; return the ranks, which have ended. A rank that hangs prints its stacks."""
    # A forked process that finalizes its interpreter would delete a TemporaryDirectory.
    folder = Path(tempfile.mkdtemp())
    ranks = _start_ranks(case, folder)
    try:
        _wait_for_ends(case, ranks)
    finally:
        for rank in ranks:
            rank.process.kill()
            rank.process.join()
        shutil.rmtree(folder)
    return ranks


def _wait_for_ends(case: LostRanks, ranks: Sequence[Rank]) -> None:
    away = [rank for rank in ranks if dict(case.lost).get(rank.number) in RETURNING]
    others = [rank for rank in ranks if rank not in away]
    end = time.monotonic() + SETUP_LIMIT
    while not any(rank.fault_time for rank in ranks):
        if time.monotonic() > end:
            return
        _receive(ranks)
    _wait_until_ended(others)
    for rank in away:
        rank.receive()
        if rank.exit_code is None:
            rank.resume()
    _wait_until_ended(away)


def _wait_until_ended(ranks: Sequence[Rank]) -> None:
    end = time.monotonic() + _HANG_LIMIT
    while time.monotonic() < end and any(rank.exit_code is None for rank in ranks):
        _receive(ranks)
    for rank in ranks:
        if rank.exit_code is None:
            print(f"rank {rank.number} hangs:", flush=True)
            os.kill(rank.process.pid, signal.SIGABRT)  # `faulthandler` prints all stacks.
            rank.process.join(1)


def _receive(ranks: Iterable[Rank]) -> None:
    """Wait for the end of a rank, 0.1 s at most, and receive the messages of all ranks."""
    wait([rank.process.sentinel for rank in ranks if rank.process.is_alive()], 0.1)
    for rank in ranks:
        rank.receive()


def _start_ranks(case: LostRanks, folder: Path) -> list[Rank]:
    listener = socket.create_server(("127.0.0.1", 0))
    ranks = []
    for number in range(SIZE):
        pipe, rank_pipe = _FORK.Pipe()
        process = _FORK.Process(target=run_rank, args=(case, number, folder, listener, rank_pipe))
        process.start()
        rank_pipe.close()
        ranks.append(Rank(number, process, pipe))
    if case.store == "other process":
        # Keep a reference, so that the server lives until this process ends, after the case.
        _SERVERS.append(make_store(case, None, folder, listener))
    listener.close()
    return ranks
