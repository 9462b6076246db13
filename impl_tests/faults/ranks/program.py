"""The program of one rank: it joins the process group, trains, and reports its end."""

import ctypes
import faulthandler
import os
import signal
import socket
import sys
import time
import traceback
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from .cases import Case
from .faults import RankFault
from .training import train

__all__ = ["SETUP_LIMIT", "TimeLimits", "make_store", "run_rank"]

#: The time limit in seconds for the start of the ranks and the first fault.
SETUP_LIMIT = 60.0


class TimeLimits(NamedTuple):
    """Time limits in seconds.

    Args:
        collective: The time limit of the process group for a collective.
        error: The time from the last fault to the errors of the other ranks.
        hang: The time from the first fault, or from the resumption of lost ranks, to the end of
            the ranks. A rank that has not ended then counts as hung.
    """

    collective: float
    error: float
    hang: float


def make_store(
    case: Case, rank: int | None, limits: TimeLimits, folder: Path, listener: socket.socket
) -> Any:
    """Return the store of ``rank``; for None, that of the process that starts the ranks."""
    if case.store == "file":
        return dist.FileStore(str(folder / "store"), case.size)  # type: ignore[attr-defined] # missing in the stubs
    is_server = rank == (0 if case.store == "rank 0" else None)
    port = listener.getsockname()[1]
    return dist.TCPStore(  # type: ignore[attr-defined] # missing in the stubs
        "127.0.0.1",
        port,
        case.size,
        is_server,
        timedelta(seconds=SETUP_LIMIT),
        wait_for_workers=False,
        master_listen_fd=os.dup(listener.fileno()) if is_server else None,
    )


def run_rank(
    case: Case,
    rank: int,
    limits: TimeLimits,
    folder: Path,
    listener: socket.socket,
    pipe: Connection,
) -> None:
    """Run the program of a rank, and end the process."""
    faulthandler.register(signal.SIGUSR1, file=2, all_threads=True)
    torch.set_num_threads(1)
    status = 0
    try:
        store = make_store(case, rank, limits, folder, listener)
        listener.close()
        timeout = timedelta(seconds=limits.collective)
        dist.init_process_group(
            "gloo", store=store, rank=rank, world_size=case.size, timeout=timeout
        )
        pipe.send({"is_ready": True})
        fault = RankFault(
            case, rank, lambda: pipe.send({"fault_time": time.monotonic()}), lambda: pipe.recv()
        )
        with fault.watch_collectives():
            train(case, rank, fault)
        pipe.send({"end_time": time.monotonic()})
    except BaseException as error:
        traceback.print_exc()
        kind, text = type(error).__name__, str(error)
        pipe.send({"error": kind, "text": text, "end_time": time.monotonic()})
        status = 1
    if case.is_finalized:
        ctypes.pythonapi.Py_Exit(status)
    sys.exit(status)  # multiprocessing then joins the threads and ends the process.
