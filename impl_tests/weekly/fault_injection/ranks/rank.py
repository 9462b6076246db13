"""The program of one rank: it joins the process group, trains until its fault, and reports."""

import copy
import ctypes
import os
import signal
import socket
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from impl.distributed import DataParallel

from .lost_ranks import SIZE, LostRanks

__all__ = ["INJECTED", "SETUP_LIMIT", "make_store", "run_rank"]

#: The text of injected errors. It names no rank.
INJECTED = "injected error"
#: The time limit in seconds for the start of the ranks and the first fault.
SETUP_LIMIT = 60.0
#: The time limit in seconds of the process group for a collective.
_COLLECTIVE_LIMIT = 4.0
#: The number of steps. The first succeeds, and ranks are lost in the second. If ranks are lost at
#: the end of the second, the others notice this in the third. The fourth is an additional step.
_STEPS = 4


class _RankFault:
    """The fault of one rank.

    Args:
        case: The case.
        rank: This rank.
        notify: A function that is called just before the fault occurs.
        wait: A function that returns when the rank may continue.

    Attributes:
        phase: The part of the program that runs: `constructor`, `forward`, `mean` or `backward`.
    """

    def __init__(
        self, case: LostRanks, rank: int, notify: Callable[[], None], wait: Callable[[], None]
    ) -> None:
        self._how, self._where, self._case = dict(case.lost).get(rank), case.where, case
        if rank == case.raising:
            self._how = "raises"
            self._where = "in forward" if case.where == "between" else case.where
        self._notify, self._wait = notify, wait
        # The numbers of collectives in each phase of this step, and of the previous step.
        self._calls, self._calls_before = Counter[str](), Counter[str](["constructor"])
        self._is_armed = case.where == "constructor"
        self.phase = "constructor"

    def begin_step(self, is_armed: bool) -> None:
        """Count collectives from 0 again. The fault may occur if ``is_armed``."""
        self._calls, self._calls_before = Counter(), self._calls
        self._is_armed = is_armed
        self.reach("between")

    def reach(self, place: str) -> None:
        """Inject the fault if it may occur and ``place`` is the chosen place."""
        if self._is_armed and place == self._where and self._how is not None:
            self._is_armed = False
            self._notify()
            self._act(self._how)

    def watch_collectives(self) -> None:
        """Make the collectives of torch.distributed that impl.distributed calls reach a place."""
        for name in ("all_gather", "all_reduce", "broadcast"):
            setattr(dist, name, self._wrap(getattr(dist, name)))

    def _wrap(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            index, total = self._calls[self.phase], self._calls_before[self.phase]
            self._calls[self.phase] += 1
            place = self.phase if total and index == self._case.draw % total else ""
            if not self._case.is_begun:
                self.reach(place)
            work = original(*args, **kwargs)
            self.reach(place)
            return work

        return call

    def _act(self, how: str) -> None:
        if how == "os._exit":
            os._exit(3)
        elif how == "sys.exit":
            sys.exit(3)
        elif how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        elif how == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif how == "stays away":
            self._wait()
        else:
            raise (RuntimeError if how == "fails" else ValueError)(INJECTED)


class _Net(nn.Module):
    """Two layers and a buffer. Faults in forward and in backward occur between the layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 8).double(), nn.Linear(8, 2).double()
        self.register_buffer("offset", torch.ones(2, dtype=torch.float64))
        self.reach: Callable[[str], None] = lambda place: None

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the second layer plus the buffer."""
        hidden = self.first(x).tanh()
        self.reach("in forward")
        hidden.register_hook(lambda grad: self.reach("in backward"))
        out: Tensor = self.second(hidden) + self.offset
        return out

    def update(self) -> None:
        """Do a step of gradient descent. The module torch.optim would be slow to import."""
        with torch.no_grad():
            for parameter in self.parameters():
                if parameter.grad is not None:
                    parameter.sub_(parameter.grad, alpha=0.1)
                parameter.grad = None


class _WatchedList(list[Any]):
    """A list. A fault in `part` occurs when an iteration over the list begins."""

    reach: Callable[[str], None]

    def __iter__(self) -> Iterator[Any]:
        self.reach("in part")
        return super().__iter__()


def _train(case: LostRanks, rank: int, fault: _RankFault) -> None:
    """Run all steps on this rank. Raise an AssertionError if the result of a step is wrong."""
    torch.manual_seed(case.seed)
    alone = _Net()
    net = copy.deepcopy(alone)
    net.reach = fault.reach
    # The buckets are small, one for each layer, so that backward has several collectives.
    wrapped = DataParallel(net, gather_output=case.gather_output, bucket_cap_mb=1e-4)
    for step in range(_STEPS):
        x, y = torch.randn(2, 2 * SIZE + 1, 2, dtype=torch.float64)
        inputs = [x.clone().requires_grad_(case.input_grads) for _ in range(2)]
        out = alone(inputs[0])
        loss = ((out - y) ** 2).sum(1).mean()
        loss.backward()
        if not case.gather_output:
            out = out.chunk(SIZE)[rank]
        expected = [out, loss, *_grads(alone, inputs[0])]
        fault.begin_step(is_armed=step == 1)
        found = [*_step(wrapped, inputs[1], y, case, fault), *_grads(net, inputs[1])]
        # The results differ by rounding of float64 only.
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-9)
        net.update()
        alone.update()


def _step(
    wrapped: DataParallel[_Net], x: Tensor, y: Tensor, case: LostRanks, fault: _RankFault
) -> list[Tensor]:
    """Run a step of this rank; return its output and the loss."""
    fault.phase = "forward"
    out = wrapped(x)
    if case.gather_output:
        loss = ((out - y) ** 2).sum(1).mean()
    else:
        watched = _WatchedList([y])
        watched.reach = fault.reach
        (target,) = list.__iter__(wrapped.part(watched))
        fault.phase = "mean"
        loss = wrapped.mean(((out - target) ** 2).sum(1))
    fault.phase = "backward"
    loss.backward()
    return [out, loss]


def _grads(net: _Net, x: Tensor) -> list[Tensor]:
    return [leaf.grad for leaf in [*net.parameters(), x] if leaf.grad is not None]


def make_store(case: LostRanks, rank: int | None, folder: Path, listener: socket.socket) -> Any:
    """Return the store of ``rank``; for None, that of the process that starts the ranks."""
    if case.store == "file":
        return dist.FileStore(str(folder / "store"), SIZE)  # type: ignore[attr-defined] # missing in the stubs
    is_server = rank == (0 if case.store == "rank 0" else None)
    port = listener.getsockname()[1]
    return dist.TCPStore(  # type: ignore[attr-defined] # missing in the stubs
        "127.0.0.1",
        port,
        SIZE,
        is_server,
        timedelta(seconds=SETUP_LIMIT),
        wait_for_workers=False,
        master_listen_fd=os.dup(listener.fileno()) if is_server else None,
    )


def run_rank(
    case: LostRanks, rank: int, folder: Path, listener: socket.socket, pipe: Connection
) -> None:
    """Run the program of a rank, and end the process."""
    torch.set_num_threads(1)
    status = 0
    try:
        store = make_store(case, rank, folder, listener)
        listener.close()
        timeout = timedelta(seconds=_COLLECTIVE_LIMIT)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=SIZE, timeout=timeout)
        pipe.send({"is_ready": True})
        fault = _RankFault(
            case, rank, lambda: pipe.send({"fault_time": time.monotonic()}), lambda: pipe.recv()
        )
        fault.watch_collectives()
        _train(case, rank, fault)
        pipe.send({"end_time": time.monotonic()})
    except BaseException as error:
        traceback.print_exc()
        kind, text = type(error).__name__, str(error)
        pipe.send({"error": kind, "text": text, "end_time": time.monotonic()})
        status = 1
    if case.is_finalized:
        ctypes.pythonapi.Py_Exit(status)
    sys.exit(status)  # multiprocessing then joins the threads and ends the process.
