"""Replicas that compute whole batches, each on its own device."""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from queue import SimpleQueue
from threading import Lock
from time import monotonic
from typing import Any

from ._compiled import has_compiled_code
from ._devices import as_device_or_current, is_cpu
from ._errors import CapturedError, reraise
from ._one_device import call_on_one_device
from ._placement import DeviceId
from ._replica_group import ReplicaGroup
from ._streams import current_stream_by_device
from ._thread_state import ThreadState, call_in, clear_old_casts, thread_states
from ._threads import PendingCall, start_call
from ._wrapped_module import method_of
from .parallel_apply import format_device

#: The time between two samples of the module, in seconds, while batches are computed.
SAMPLE_INTERVAL = 0.05


class _Batch(PendingCall):
    """A batch that the replica ``index`` computes. The next one that waits follows it."""

    __slots__ = ("_pool", "index", "number")

    def __init__(
        self, pool: "ReplicaPool", number: int, index: int, function: Callable[[], Any]
    ) -> None:
        super().__init__(function)
        self._pool, self.number, self.index = pool, number, index

    def find_next(self) -> PendingCall | None:
        return self._pool.free(self.index)

    def set_done(self) -> None:
        returned = self._pool.returned
        del self._pool  # The pool refers to this batch until its output is taken.
        returned.put(self)


class ReplicaPool:
    """The replicas of a wrapper. Each computes one batch at a time, in another thread.

    A replica that has computed a batch takes the next one itself, so it does not wait for the
    calling thread.

    Args:
        devices: For each replica, its device.
        output_device: The device of the outputs.
        method: The name of the method that computes a batch; None for the forward.
        in_turn: Whether a batch begins when the batch before it has returned.
        return_exceptions: Whether the error of a batch is its output.

    Attributes:
        devices: For each replica, its device.
        returned: The batches that have ended, in any thread.
        ended: For the number of each batch of which the calling thread knows that it has ended,
            and which was not taken: the batch.
    """

    def __init__(
        self,
        devices: Sequence[DeviceId],
        output_device: DeviceId,
        method: str | None,
        in_turn: bool,
        *,
        return_exceptions: bool,
    ) -> None:
        self.devices = [*map(as_device_or_current, devices)]
        self._num_on_cpu = sum(map(is_cpu, self.devices))
        self._output_device, self._method = output_device, method
        self._in_turn, self._return_exceptions = in_turn, return_exceptions
        self._lock = Lock()
        self._free = deque(range(len(devices)))
        self._waiting = deque[tuple[int, Any]]()
        self._replicas: Sequence[Any] = ()
        self._states: Sequence[ThreadState] = ()
        self._process = os.getpid()
        self._num_unfinished = 0
        self._next_sample = 0.0
        self.returned = SimpleQueue[_Batch]()
        self.ended: dict[int, _Batch] = {}

    def __len__(self) -> int:
        """Return the number of batches whose outputs were not taken."""
        return self._num_unfinished + len(self.ended)

    def accepts(self, limit: int) -> bool:
        """Return whether to take batches, until there are ``limit``.

        To take several at a time is faster, because the module is compared each time.
        """
        num_free = limit - len(self)
        return num_free > len(self.devices) // 2 or (num_free > 0 and not self._waiting)

    def update(self, find_replicas: Callable[..., Sequence[Any]]) -> None:
        """Compute batches that begin later with the current replicas, in the state of this thread.

        The replicas are compared by samples of the module, too, if nothing is computed, or
        ``SAMPLE_INTERVAL`` after the last samples.
        """
        now = monotonic()
        samples = now >= self._next_sample or not len(self)
        if samples:
            self._next_sample = now + SAMPLE_INTERVAL
        replicas = find_replicas(samples=samples)
        if replicas is not self._replicas:
            # PyTorch compiles in one thread at a time.
            self._in_turn = self._in_turn or any(map(has_compiled_code, replicas))
            clear_old_casts()
        states = thread_states(self.devices, 1 if self._in_turn else self._num_on_cpu)
        with self._lock:
            self._replicas, self._states = replicas, states

    def add(self, number: int, batch: Any) -> None:
        """Compute ``batch`` when a replica is free."""
        with self._lock:
            self._waiting.append((number, batch))
            begun = self._begin_next()
        if begun is not None:
            try:
                start_call(begun)
            except BaseException:  # The system may refuse a thread.
                self._free.append(begun.index)
                raise
        self._num_unfinished += 1

    def free(self, index: int) -> _Batch | None:
        """Begin the next batch, because the replica ``index`` has computed one."""
        with self._lock:
            self._free.append(index)
            return self._begin_next()

    def _begin_next(self) -> _Batch | None:
        """Return the next batch, if one waits and a replica is free. Call this with the lock."""
        is_busy = self._in_turn and len(self._free) < len(self.devices)
        if is_busy or not (self._waiting and self._free):
            return None
        number, batch = self._waiting.popleft()
        index = self._free.popleft()
        replica, state = self._replicas[index], self._states[index]
        group = ReplicaGroup([replica], "in DataParallel.map: call eval() before")
        args = (replica, self.devices[index], batch)
        # Batches of one state may run at the same time, each in its own context.
        run = partial(state.context.copy().run, group.run, 0, call_in, state, self._compute)
        return _Batch(self, number, index, partial(run, args, {}))

    def _compute(self, replica: Any, device: Any, batch: Any) -> Any:
        args, kwargs = _arguments(batch)
        function = method_of(replica, self._method)
        output = call_on_one_device(function, args, kwargs, device, self._output_device, 0)
        if not self._in_turn:
            # A replica is free when its device has computed, so a faster one gets more batches.
            for stream in current_stream_by_device([device]).values():
                stream.synchronize()
        return output

    def take(self, number: int) -> Any:
        """Return the output of a batch that has ended, or raise its exception."""
        batch = self.ended.pop(number)
        outcome = batch.take_outcome()
        if not isinstance(outcome, CapturedError):
            return outcome
        device = format_device(self.devices[batch.index])
        try:
            reraise(
                outcome.pop(), f"in replica {batch.index} on device {device}, in batch {number}"
            )
        except Exception as error:
            if not self._return_exceptions:
                raise
            return error.with_traceback(None)

    def wait_for_one(self) -> None:
        """Wait until one more batch has ended."""
        if self._process != os.getpid():
            raise RuntimeError("the generator of map() was made in the parent process")
        batch = self.returned.get()
        self.ended[batch.number] = batch
        self._num_unfinished -= 1

    def close(self, *, waits: bool) -> None:
        """Drop the batches that have not begun. With ``waits`` wait for the others."""
        if self._process != os.getpid():
            return  # A forked child lacks the threads of the parent process.
        with self._lock:
            self._num_unfinished -= len(self._waiting)
            self._waiting.clear()
            self._replicas = self._states = ()
        while waits and self._num_unfinished:
            self.wait_for_one()
        for batch in self.ended.values():
            batch.take_outcome()
        self.ended.clear()


def _arguments(batch: Any) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    if isinstance(batch, Mapping):
        return (), batch
    return (tuple(batch) if isinstance(batch, (tuple, list)) else (batch,)), {}


def map_batches(
    batches: Iterator[Any],
    find_replicas: Callable[..., Sequence[Any]],
    pool: ReplicaPool,
    limit: int,
    *,
    ordered: bool,
) -> Generator[Any]:
    """Yield the output of each of ``batches``. At most ``limit`` of them are in ``pool``.

    ``find_replicas`` is called when batches are taken after the caller had control.
    """
    begun, taken, has_ended, failure = 0, 0, False, None
    try:
        while True:
            if not has_ended and pool.accepts(limit):
                try:
                    first = begun
                    for batch in islice(batches, limit - len(pool)):
                        if begun == first:
                            pool.update(find_replicas)
                        pool.add(begun, batch)
                        begun += 1
                        del batch  # The batch is freed when it has been computed.
                    has_ended = len(pool) < limit
                except Exception as error:  # Raise it after the outputs of earlier batches.
                    has_ended, failure, batch = True, error, None
            if not len(pool):
                break
            number = taken if ordered else next(iter(pool.ended), taken)
            while number not in pool.ended:
                pool.wait_for_one()
                number = taken if ordered else next(iter(pool.ended))
            taken += 1
            yield pool.take(number)
        if failure is not None:
            raise failure
    except (Exception, GeneratorExit):
        pool.close(waits=True)
        raise
    finally:
        pool.close(waits=False)
        del failure  # Its traceback refers to this frame.
