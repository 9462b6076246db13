"""Processes of one group that are started once and are given functions to run.

Every wait has a limit. Processes that do not answer are killed, and others are started for the
next call; none outlives this one, since a process ends when nobody holds its pipe any more.
"""

import importlib
import multiprocessing
import os
import pickle
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch

#: Seconds that a call may take before its processes are taken to hang.
PATIENCE = 90.0
#: Seconds that a rank waits for another in a collective.
TIME_LIMIT = 30.0


@dataclass(frozen=True)
class Rank:
    """What a function that runs in a process is given.

    Args:
        rank: Its place in the group.
        size: The number of ranks.
        group: The process group; None for the default one.
        distributed: The part of the target under test.
        markers: What has ``Whole`` and ``SplitAlong``.
    """

    rank: int
    size: int
    group: Any
    distributed: Any
    markers: Any


@dataclass(frozen=True)
class Raised:
    """What stands for a result where a function has raised.

    Args:
        kind: The name of the exception's class.
        text: Its text.
    """

    kind: str
    text: str


class Pool:
    """Up to ``size`` ranks with the back end gloo.

    Args:
        target: The name of the target.
        mapping: Where the target has its parts.
        size: How many processes there are.
        time_limit: Seconds that a rank waits for another.
    """

    def __init__(
        self, target: str, mapping: Mapping[str, str], size: int, time_limit: float = TIME_LIMIT
    ) -> None:
        self._about = target, dict(mapping), time_limit
        self._size = size
        self._processes: list[Any] = []
        self._pipes: list[Connection] = []
        self._folder = tempfile.mkdtemp(prefix="ranks")
        self._generation = 0

    def run(self, size: int, function: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
        """Call ``function(rank, *args, **kwargs)`` on the first ``size`` ranks.

        Returns:
            What each rank returns, `Raised` where it raised. None where its process has ended.

        Raises:
            TimeoutError: A rank has neither answered nor ended.
        """
        if not self._processes:
            self._start()
        message = pickle.dumps((size, function, args, kwargs))
        for pipe in self._pipes[:size]:
            pipe.send_bytes(message)
        return self._answers(self._pipes[:size])

    def close(self) -> None:
        """End all processes."""
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.kill()
            process.join(PATIENCE)
            process.close()
        self._processes, self._pipes = [], []
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self) -> None:
        self._generation += 1
        Path(self._folder).mkdir(exist_ok=True)
        store = str(Path(self._folder) / f"store{self._generation}")
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["spec_tests.distributed.pool"])
        for rank in range(self._size):
            here, there = context.Pipe()
            arguments = rank, self._size, store, there, *self._about
            process = context.Process(target=_serve, args=arguments, daemon=True)
            process.start()
            there.close()
            self._processes.append(process)
            self._pipes.append(here)

    def _answers(self, pipes: list[Connection]) -> list[Any]:
        answers: dict[int, Any] = {}
        open_pipes = dict(enumerate(pipes))
        while open_pipes:
            ready = wait(list(open_pipes.values()), PATIENCE)
            if not ready:
                self.close()
                raise TimeoutError(f"ranks {list(open_pipes)} hang")
            for rank, pipe in list(open_pipes.items()):
                if pipe in ready:
                    answers[rank] = _received(open_pipes.pop(rank))
        return [answers[rank] for rank in sorted(answers)]


def _received(pipe: Connection) -> Any:
    try:
        return pickle.loads(pipe.recv_bytes())
    except (EOFError, ConnectionError):
        return None


def _serve(
    rank: int,
    size: int,
    store: str,
    pipe: Connection,
    target: str,
    mapping: dict[str, str],
    time_limit: float,
) -> None:
    from spec_tests.harness.environment.target import Target

    torch.set_num_threads(1)

    _silence()
    dist: Any = importlib.import_module("torch.distributed")
    dist.init_process_group(
        "gloo",
        store=dist.FileStore(store, size),
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=time_limit),
    )
    groups = [dist.new_group(list(range(count))) for count in range(1, size)]
    found = Target(target, mapping)
    while True:
        try:
            count, function, args, kwargs = pickle.loads(pipe.recv_bytes())
        except EOFError:
            return
        group = None if count == size else groups[count - 1]
        own = Rank(rank, count, group, found.distributed, found.package)
        pipe.send_bytes(pickle.dumps(_result(function, own, args, kwargs)))


def _result(function: Callable[..., Any], own: Rank, args: Any, kwargs: Any) -> Any:
    try:
        return function(own, *args, **kwargs)
    except Exception as error:
        return Raised(type(error).__name__, str(error))


def _silence() -> None:
    """Drop what is printed: that connections are lost, for one, which tests bring about."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
