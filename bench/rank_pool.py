"""Pool of processes that form one process group and run functions.

Every wait has a time limit. If a worker does not respond, all workers are killed, and the next
call starts new workers. A worker ends when its pipe is closed, so no worker outlives this process.
"""

import importlib
import multiprocessing
import os
import pickle
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch

#: Seconds to wait for the next result of a rank.
CALL_TIMEOUT = 90.0
#: Seconds that a collective may take.
COLLECTIVE_TIMEOUT = 30.0
#: The module that DistributedDataParallel imports, which takes seconds.
_SLOW_MODULE = "torch._dynamo"


@dataclass(frozen=True)
class RankContext:
    """The first argument of a function that runs on a rank."""

    rank: int
    size: int  # The number of ranks in the group.
    group: Any  # None for the default group.


@dataclass(frozen=True)
class Raised:
    """The exception of a function that failed on a rank."""

    kind: str  # The name of its class.
    text: str


class Pool:
    """The ranks of a process group with the backend gloo, each in a process.

    Args:
        size: The number of ranks.
        modules: Names of modules with functions that run on ranks. The ranks are forks of a
            process that has imported these modules, so that each rank starts fast.
    """

    def __init__(self, size: int, modules: Sequence[str] = ()) -> None:
        self._size, self._modules = size, [_SLOW_MODULE, *modules]
        self._processes: list[Any] = []
        self._pipes: list[Connection] = []
        self._folder = ""

    def run(self, size: int, function: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
        """Call ``function(context, *args, **kwargs)`` on the first ``size`` ranks.

        Returns:
            One result per rank: the return value, a `Raised`, or None if the process has ended.

        Raises:
            TimeoutError: A rank has neither responded nor ended.
        """
        if not self._processes:
            self._start()
        message = pickle.dumps((size, function, args, kwargs))
        for pipe in self._pipes[:size]:
            pipe.send_bytes(message)
        return self._receive_all(self._pipes[:size])

    def close(self) -> None:
        """Kill all processes."""
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.kill()
            process.join(CALL_TIMEOUT)
            process.close()
        self._processes, self._pipes = [], []
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="ranks")
        store = str(Path(self._folder) / "store")
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(self._modules)
        for rank in range(self._size):
            pipe, worker_pipe = context.Pipe()
            args = rank, self._size, store, worker_pipe
            process = context.Process(target=_run_worker, args=args, daemon=True)
            process.start()
            worker_pipe.close()
            self._processes.append(process)
            self._pipes.append(pipe)
        # A rank may end as soon as a function runs. A rank that still joins a group fails then.
        self._receive_all(self._pipes)

    def _receive_all(self, pipes: list[Connection]) -> list[Any]:
        results: dict[int, Any] = {}
        open_pipes = dict(enumerate(pipes))
        while open_pipes:
            ready = wait(list(open_pipes.values()), CALL_TIMEOUT)
            if not ready:
                self.close()
                raise TimeoutError(f"ranks {list(open_pipes)} do not respond")
            for rank, pipe in list(open_pipes.items()):
                if pipe in ready:
                    results[rank] = _receive(open_pipes.pop(rank))
        return [results[rank] for rank in sorted(results)]


def _receive(pipe: Connection) -> Any:
    try:
        return pickle.loads(pipe.recv_bytes())
    except (EOFError, ConnectionError):
        return None


def _run_worker(rank: int, size: int, store: str, pipe: Connection) -> None:
    torch.set_num_threads(1)

    _discard_output()
    dist: Any = importlib.import_module("torch.distributed")
    dist.init_process_group(
        "gloo",
        store=dist.FileStore(store, size),
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=COLLECTIVE_TIMEOUT),
    )
    groups = [dist.new_group(list(range(count))) for count in range(1, size)]
    pipe.send_bytes(pickle.dumps(None))  # This rank has joined all groups.
    while True:
        try:
            count, function, args, kwargs = pickle.loads(pipe.recv_bytes())
        except EOFError:
            return
        group = None if count == size else groups[count - 1]
        context = RankContext(rank, count, group)
        pipe.send_bytes(pickle.dumps(_call(function, context, args, kwargs)))


def _call(function: Callable[..., Any], context: RankContext, args: Any, kwargs: Any) -> Any:
    try:
        return function(context, *args, **kwargs)
    except Exception as error:
        return Raised(type(error).__name__, str(error))


def _discard_output() -> None:
    """Discard the output of this process, such as gloo's messages about lost connections."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, 1)
    os.dup2(devnull, 2)
