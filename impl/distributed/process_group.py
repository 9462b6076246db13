"""The processes of a group, and what they tell each other.

``k`` is the number of ranks.
"""

import pickle
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.futures import Future

from .._device import CPU, is_cpu
from .._threads import start
from .liveness import RollCall

__all__ = ["Ranks", "ranks_of"]

#: Bytes that every rank sends at once. What is longer is sent in a second round.
_FRAME = 1024
#: Of them, those that say how many there are.
_HEADER = 8
#: How often a rank that waits for others looks whether one of them has failed.
_SECOND = timedelta(seconds=1)


class Ranks:
    """The ranks of a process group.

    All of them must begin the same collectives in the same order.

    Args:
        group: The process group.
        device: This rank's device.

    Attributes:
        group: The process group.
        size: ``k``.
        rank: This process's place, from 0 on.
        wire: The device on which tensors are sent.
    """

    def __init__(self, group: dist.ProcessGroup, device: torch.device) -> None:
        self.group = group
        self.size = dist.get_world_size(self.group)
        self.rank = dist.get_rank(self.group)
        self.wire = _wire(self.group, device)
        self._roll_call = RollCall(self.group)
        self._lost: str | None = None
        self._losing = threading.Lock()

    def exchange(self, value: Any) -> list[Any]:
        """Give every rank what every rank has given, in the order of the ranks.

        Args:
            value: What pickle can send; small, as a rule.
        """
        payload = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
        frame = len(payload).to_bytes(_HEADER, "big") + payload[: _FRAME - _HEADER]
        frames = self._gathered(frame, _FRAME)
        lengths = [int.from_bytes(each[:_HEADER], "big") for each in frames]
        payloads = [each[_HEADER:] for each in frames]
        if max(lengths) > _FRAME - _HEADER:
            payloads = self._gathered(payload, max(lengths))
        return list(map(pickle.loads, payloads))  # It stops at the end of a value by itself.

    def _gathered(self, data: bytes, size: int) -> list[bytes]:
        own = torch.frombuffer(bytearray(data.ljust(size, b"\0")), dtype=torch.uint8)
        return [bytes(row.tolist()) for row in self.gather_bytes(own.to(self.wire))]

    def gather_bytes(self, own: Tensor) -> list[Tensor]:
        """Give every rank the bytes of all, of equal number, in the order of the ranks."""
        rows = list(own.new_empty(self.size, len(own)).unbind())
        self._complete(lambda: dist.all_gather(rows, own, group=self.group, async_op=True))
        return rows

    def broadcast_bytes(self, data: Tensor, source: int) -> None:
        """Overwrite ``data`` with that of rank ``source``."""
        self._complete(
            lambda: dist.broadcast(data, group=self.group, group_src=source, async_op=True)
        )

    def sum(self, tensor: Tensor) -> None:
        """Overwrite ``tensor`` with the sum of all ranks'."""
        self._complete(lambda: dist.all_reduce(tensor, group=self.group, async_op=True))

    def begin_sum(self, tensor: Tensor) -> Future[Tensor]:
        """Begin to overwrite ``tensor`` with the sum of all ranks'.

        Returns:
            A future of ``tensor``.
        """
        work: Any = dist.all_reduce(tensor, group=self.group, async_op=True)
        if is_cpu(self.wire):
            return self._future_of(tensor, work)
        # Streams order what comes after; a process group on devices has a watchdog of its own.
        done: Future[Tensor] = work.get_future().then(lambda future: future.value()[0])
        return done

    def _future_of(self, tensor: Tensor, work: Any) -> Future[Tensor]:
        """Give a future of ``tensor``, which fails when ``work`` does, or a rank.

        A callback of ``work`` would be simpler, but runs in a thread of the process group's: one
        that is still in Python when the interpreter ends aborts the process. The end of this
        process waits for the thread of this one.
        """
        future: Future[Tensor] = Future()
        start(lambda: self._settle(future, tensor, work))
        # Only what a callback raises is an error to those who wait in C++.
        awaited: Future[Tensor] = future.then(lambda done: done.value())
        return awaited

    def _settle(self, future: Future[Tensor], tensor: Tensor, work: Any) -> None:
        try:
            self._wait(work)
        except Exception as error:  # Whatever it is, backward waits for it in the future.
            future.set_exception(self._loss(error))  # type: ignore[arg-type] # torch takes any
        else:
            future.set_result(tensor)

    def check(self) -> None:
        """Refuse to go on once a rank has been lost.

        Raises:
            RuntimeError: A collective has failed before.
        """
        if self._lost is not None:
            raise RuntimeError(self._lost)

    def _complete(self, begin: Callable[[], Any]) -> None:
        """Run a collective to its end, or say who is missing."""
        self.check()
        try:
            work = begin()
            if is_cpu(self.wire):
                self._wait(work)
            else:
                work.wait()  # The host waits for nothing; there is nobody to look for yet.
        except RuntimeError as error:
            raise self._loss(error) from error

    def _wait(self, work: Any) -> None:
        while True:
            try:
                work.wait(_SECOND)
                return
            except RuntimeError:
                if work.is_completed():
                    raise
            if self._roll_call.is_called():
                raise RuntimeError("another rank has met a failure")

    def _loss(self, error: Exception) -> RuntimeError:
        """Say in words that a collective has failed, and who is missing; the first time asks."""
        with self._losing:
            if self._lost is None:
                missing = self._roll_call.missing()
                self._lost = f"{missing} (seen from rank {self.rank}: {error})"
        return RuntimeError(self._lost)


#: By the identity of the group, which nobody says can be a key.
_KNOWN: dict[tuple[int, torch.device], Ranks] = {}


def ranks_of(group: dist.ProcessGroup | None, device: torch.device) -> Ranks:
    """Give the ranks of ``group``, for one device of this process always the same.

    Args:
        group: The process group; None for the default one.
        device: This rank's device.

    Raises:
        RuntimeError: There is no process group, or this process is not in it.
    """
    existing = _existing(group)
    known = _KNOWN.get((id(existing), device))
    # Of groups that are gone another may have the id.
    if known is None or known.group is not existing:
        known = _KNOWN[id(existing), device] = Ranks(existing, device)
    return known


def _existing(group: dist.ProcessGroup | None) -> dist.ProcessGroup:
    if not (dist.is_available() and dist.is_initialized()):
        raise RuntimeError(
            "there is no process group: call torch.distributed.init_process_group() first, "
            "in a program that torchrun has started"
        )
    found = dist.group.WORLD if group is None else group
    if found is None or dist.get_rank(found) < 0:
        raise RuntimeError("this process is not in the process group")
    return found


def _wire(group: Any, device: torch.device) -> torch.device:
    """Give ``device`` where the group's back end sends from it as well as from the CPU."""
    pairs = dist.get_backend_config(group).split(",")
    backends = dict(pair.split(":") for pair in pairs)
    own = backends.get(str(device).partition(":")[0])
    return CPU if own in (None, "gloo") else device
