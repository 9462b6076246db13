"""The collectives of a process group. They raise an error if a rank has ended."""

import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.futures import Future

from .._devices import CPU, is_cpu
from .._threads import start_in_thread
from .liveness import LivenessCheck

#: Bytes that each rank sends in the first round of `all_gather_object`. If a payload does not fit,
#: a second round sends the payloads.
_FRAME_BYTES = 1024
#: Bytes at the start of the frame that hold the length of the payload.
_HEADER_BYTES = 8
#: Time after which a waiting rank looks again whether another rank has requested a liveness check.
_POLL_INTERVAL = timedelta(seconds=1)


class Communicator:
    """The collectives of a process group, for one device of this process.

    All ranks must begin the same collectives in the same order. ``device`` is that of this rank's
    module. Tensors that collectives send are on ``comm_device``.
    """

    def __init__(self, group: dist.ProcessGroup, device: torch.device) -> None:
        self.group, self.device = group, device
        self.size = dist.get_world_size(self.group)
        self.rank = dist.get_rank(self.group)
        self.comm_device = _comm_device(self.group, device)
        self._liveness_check = LivenessCheck(self.group)
        self._failure: str | None = None
        self._failure_lock = threading.Lock()

    def all_gather_object(self, value: Any) -> list[Any]:
        """Send ``value``, pickled, to all ranks. Return the values of all ranks in rank order."""
        payload = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
        max_payload = _FRAME_BYTES - _HEADER_BYTES
        frame = len(payload).to_bytes(_HEADER_BYTES, "big") + payload[:max_payload]
        frames = self._all_gather_bytes(frame, _FRAME_BYTES)
        lengths = [int.from_bytes(each[:_HEADER_BYTES], "big") for each in frames]
        payloads = [each[_HEADER_BYTES:] for each in frames]
        if max(lengths) > max_payload:
            payloads = self._all_gather_bytes(payload, max(lengths))
        return list(map(pickle.loads, payloads))  # `loads` ignores the padding at the end.

    def _all_gather_bytes(self, data: bytes, size: int) -> list[bytes]:
        vector = torch.frombuffer(bytearray(data.ljust(size, b"\0")), dtype=torch.uint8)
        return [bytes(row.tolist()) for row in self.all_gather(vector.to(self.comm_device))]

    def all_gather(self, vector: Tensor) -> list[Tensor]:
        """Return the vectors of all ranks, in the order of the ranks. Lengths must be equal."""
        rows = list(vector.new_empty(self.size, len(vector)).unbind())
        self._run_collective(
            lambda: dist.all_gather(rows, vector, group=self.group, async_op=True)
        )
        return rows

    def broadcast(self, data: Tensor, source: int) -> None:
        """Overwrite ``data`` with the value on rank ``source``."""
        self._run_collective(
            lambda: dist.broadcast(data, group=self.group, group_src=source, async_op=True)
        )

    def all_reduce(self, tensor: Tensor) -> None:
        """Overwrite ``tensor`` with its sum over all ranks."""
        self._run_collective(lambda: dist.all_reduce(tensor, group=self.group, async_op=True))

    def all_reduce_async(self, tensor: Tensor) -> Future[Tensor]:
        """Start an all-reduce of ``tensor`` in place; return a future of ``tensor``.

        The future fails if the all-reduce fails or a rank has ended.
        """
        with self.name_missing_ranks():
            work: Any = dist.all_reduce(tensor, group=self.group, async_op=True)
        if not is_cpu(self.comm_device):
            # No worker thread is needed: streams order later work, and the process group has its
            # own watchdog for lost ranks.
            done: Future[Tensor] = work.get_future().then(lambda future: future.value()[0])
            return done
        future: Future[Tensor] = Future()

        def complete() -> None:
            try:
                self._wait(work)
            except Exception as error:  # Backward waits for the future.
                future.set_exception(self._collective_error(error))  # type: ignore[arg-type] # torch accepts any error
            else:
                future.set_result(tensor)

        # The interpreter waits for worker threads at exit. A callback of `work` would run in a
        # thread of the process group: if that thread still runs Python code when the interpreter
        # exits, the process aborts.
        start_in_thread(complete)
        # Code that waits in C++ gets an error only if a callback raises it, so add a callback.
        awaited: Future[Tensor] = future.then(lambda done: done.value())
        return awaited

    def raise_if_failed(self) -> None:
        """Raise RuntimeError if an earlier collective has failed."""
        if self._failure is not None:
            raise RuntimeError(self._failure)

    @contextmanager
    def name_missing_ranks(self, place: str = "") -> Iterator[None]:
        """Return a context manager. It replaces a RuntimeError by one that names missing ranks.

        Later collectives raise this error, too. But if all ranks raise an error in the same
        ``place``, each raises its own, and later collectives run.
        """
        self.raise_if_failed()
        try:
            yield
        except RuntimeError as error:
            failure = self._collective_error(error, place)
            if failure is None:
                raise
            raise failure from error

    def _run_collective(self, begin: Callable[[], Any]) -> None:
        """Run a collective. If it fails, raise an error that names the missing ranks."""
        with self.name_missing_ranks():
            work = begin()
            if is_cpu(self.comm_device):
                self._wait(work)
            else:
                work.wait()  # This call makes the current stream wait, not the host.

    def _wait(self, work: Any) -> None:
        while True:
            try:
                work.wait(_POLL_INTERVAL)
                return
            except RuntimeError:
                if work.is_completed():
                    raise
            if self._liveness_check.is_requested():
                raise RuntimeError("a collective failed on another rank")

    def _collective_error(self, error: Exception, place: str = "") -> RuntimeError | None:
        """Return the error for a failed collective. The first failure runs a liveness check.

        Return None if the same ``place`` has failed in all ranks.
        """
        with self._failure_lock:
            if self._failure is None:
                missing = self._liveness_check.run(place)
                if missing is None:
                    return None
                self._failure = f"{missing} (seen from rank {self.rank}: {error})"
        return RuntimeError(self._failure)


def get_communicator(group: dist.ProcessGroup | None, device: torch.device) -> Communicator:
    """Return the only communicator of ``group`` (None for the default group) and ``device``.

    Raise RuntimeError if there is no process group, or if this process is not in it.
    """
    if not (dist.is_available() and dist.is_initialized()):
        raise RuntimeError(
            "there is no process group: call torch.distributed.init_process_group() first, "
            "in a program started by torchrun"
        )
    resolved = dist.group.WORLD if group is None else group
    if resolved is None or dist.get_rank(resolved) < 0:
        raise RuntimeError("this process is not in the process group")
    return _make_communicator(resolved, device)


_make_communicator = cache(Communicator)


def _comm_device(group: Any, device: torch.device) -> torch.device:
    """Return ``device`` if the group has a back end for it other than Gloo, else the CPU."""
    pairs = dist.get_backend_config(group).split(",")
    backends = dict(pair.split(":") for pair in pairs)
    backend = backends.get(str(device).partition(":")[0])
    return CPU if backend in (None, "gloo") else device
