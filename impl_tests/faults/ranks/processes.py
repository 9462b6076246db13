"""The processes of a case, one for each rank, and their messages."""

import faulthandler
import multiprocessing
import os
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from .cases import RETURNING, Case
from .program import SETUP_LIMIT, TimeLimits, make_store, run_rank

__all__ = ["RankEnd", "run_case"]

_FORK = multiprocessing.get_context("fork")
#: The stores whose server is in this process.
_SERVERS: list[Any] = []


@dataclass
class RankEnd:
    """The end of one rank.

    Args:
        rank: The rank.
        is_ready: Whether the rank joined the process group.
        fault_time: The time of the rank's fault, in seconds; None if it did not occur.
        error: The class of the error that ended the rank; an empty text if it ran all steps.
        text: The text of the error.
        end_time: The time of the error, in seconds; None if the rank reported no end.
        exit_code: The exit status; None if the process did not end.
    """

    rank: int
    is_ready: bool = False
    fault_time: float | None = None
    error: str = ""
    text: str = ""
    end_time: float | None = None
    exit_code: int | None = None


@dataclass
class _Rank:
    """The process of a rank, the pipe to the process, and the end of the rank."""

    process: Any
    pipe: Connection
    end: RankEnd
    is_open: bool = True

    def receive(self) -> None:
        """Receive all messages that have arrived, and the exit status."""
        # Read the exit status first. If the process has ended, the pipe then has all its messages.
        exit_code = self.process.exitcode
        try:
            while self.is_open and self.pipe.poll():
                for name, value in self.pipe.recv().items():
                    setattr(self.end, name, value)
        except (EOFError, ConnectionError):
            self.is_open = False
        self.end.exit_code = exit_code

    def resume(self) -> None:
        """Resume a rank that is stopped or waits."""
        os.kill(self.process.pid, signal.SIGCONT)
        if self.is_open:
            self.pipe.send(None)


def run_case(case: Case, limits: TimeLimits) -> list[RankEnd]:
    """Run ``case``; return the ends of all ranks. Make hung processes print stacks and end."""
    faulthandler.enable(2)
    # A forked process that finalizes its interpreter would delete a TemporaryDirectory.
    folder = Path(tempfile.mkdtemp())
    ranks = _start_ranks(case, limits, folder)
    try:
        _wait_for_ends(case, limits, ranks)
    finally:
        for rank in ranks:
            rank.process.kill()
            rank.process.join()
        shutil.rmtree(folder)
    return [rank.end for rank in ranks]


def _wait_for_ends(case: Case, limits: TimeLimits, ranks: list[_Rank]) -> None:
    lost = dict(case.lost)
    away = [rank for rank in ranks if lost.get(rank.end.rank) in RETURNING]
    others = [rank for rank in ranks if rank not in away]
    if not _poll(ranks, lambda: any(rank.end.fault_time for rank in ranks), SETUP_LIMIT):
        return
    _poll(others, lambda: all(rank.end.exit_code is not None for rank in others), limits.hang)
    _print_stacks(others)
    for rank in away:
        rank.receive()
        if rank.end.exit_code is None:
            rank.resume()
    _poll(away, lambda: all(rank.end.exit_code is not None for rank in away), limits.hang)
    _print_stacks(away)


def _poll(ranks: list[_Rank], is_done: Callable[[], bool], limit: float) -> bool:
    """Receive messages until ``is_done()`` or the time limit; return ``is_done()``."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        for rank in ranks:
            rank.receive()
        if is_done():
            return True
        wait([rank.process.sentinel for rank in ranks if rank.process.is_alive()], 0.1)
    return is_done()


def _print_stacks(ranks: Iterable[_Rank]) -> None:
    hung = [rank for rank in ranks if rank.process.is_alive()]
    for rank in hung:
        print(f"rank {rank.end.rank} hangs:", flush=True)
        os.kill(rank.process.pid, signal.SIGUSR1)
        time.sleep(0.5)


def _start_ranks(case: Case, limits: TimeLimits, folder: Path) -> list[_Rank]:
    listener = socket.create_server(("127.0.0.1", 0))
    ranks = []
    for rank in range(case.size):
        pipe, rank_pipe = _FORK.Pipe()
        args = case, rank, limits, folder, listener, rank_pipe
        process = _FORK.Process(target=run_rank, args=args)
        process.start()
        rank_pipe.close()
        ranks.append(_Rank(process, pipe, RankEnd(rank)))
    if case.store == "other process":
        # Keep a reference, so that the server lives until this process ends, after the case.
        _SERVERS.append(make_store(case, None, limits, folder, listener))
    listener.close()
    return ranks
