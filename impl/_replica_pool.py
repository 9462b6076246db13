"""Replicas that compute whole batches, each on its own device."""

from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from queue import SimpleQueue
from typing import Any

from ._compiled import has_compiled_code
from ._devices import as_device_or_current, is_cpu
from ._errors import CapturedError, reraise
from ._one_device import call_on_one_device
from ._placement import DeviceId
from ._replica_group import ReplicaGroup
from ._streams import current_stream_by_device
from ._thread_state import call_in, clear_old_casts, thread_states
from ._threads import PendingCall, start_in_thread
from ._wrapped_module import method_of
from .parallel_apply import format_device


class ReplicaPool:
    """The replicas of a wrapper. Each computes one batch at a time, in another thread.

    Args:
        devices: For each replica, its device.
        output_device: The device of the outputs.
        method: The name of the method that computes a batch; None for the forward.
        in_turn: Whether a batch begins when the batch before it has returned.

    Attributes:
        ended: For the number of each batch that has ended and was not taken: the replica, and its
            outcome.
    """

    def __init__(
        self,
        devices: Sequence[DeviceId],
        output_device: DeviceId,
        method: str | None,
        *,
        in_turn: bool,
    ) -> None:
        self._devices = [*map(as_device_or_current, devices)]
        self._output_device, self._method = output_device, method
        self._in_turn = in_turn
        self._free = deque(range(len(devices)))
        self._calls: dict[int, tuple[int, PendingCall]] = {}
        self._returned = SimpleQueue[int]()
        self.ended: dict[int, tuple[int, Any]] = {}

    def __len__(self) -> int:
        """Return the number of batches that have begun and whose outputs were not taken."""
        return len(self._calls) + len(self.ended)

    def can_begin(self) -> bool:
        """Return whether a replica is free."""
        return not self._calls if self._in_turn else bool(self._free)

    def begin(self, number: int, batch: Any, replicas: Sequence[Any]) -> None:
        """Begin to compute ``batch`` with one of ``replicas`` that is free."""
        index = self._free.popleft()
        # PyTorch compiles in one thread at a time.
        self._in_turn = self._in_turn or has_compiled_code(replicas[index])
        on_cpu = 1 if self._in_turn else sum(map(is_cpu, self._devices))
        (state,) = thread_states([self._devices[index]], on_cpu)
        clear_old_casts()
        group = ReplicaGroup([replicas[index]], "in DataParallel.map: call eval() before")

        def run() -> Any:
            try:
                args = (replicas[index], index, batch)
                return state.context.run(group.run, 0, call_in, state, self._compute, args, {})
            finally:
                self._returned.put(number)

        self._calls[number] = index, start_in_thread(run)

    def _compute(self, replica: Any, index: int, batch: Any) -> Any:
        device = self._devices[index]
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
        index, outcome = self.ended.pop(number)
        if isinstance(outcome, CapturedError):
            device = format_device(self._devices[index])
            reraise(outcome.pop(), f"in replica {index} on device {device}, in batch {number}")
        return outcome

    def wait_for_one(self) -> None:
        """Wait until one more batch has ended."""
        number = self._returned.get()
        index, call = self._calls.pop(number)
        self.ended[number] = index, call.wait()
        self._free.append(index)

    def wait(self) -> None:
        """Wait until no replica computes."""
        while self._calls:
            self.wait_for_one()


def _arguments(batch: Any) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    if isinstance(batch, Mapping):
        return (), batch
    return (tuple(batch) if isinstance(batch, (tuple, list)) else (batch,)), {}


def map_batches(
    batches: Iterator[Any],
    find_replicas: Callable[[], Sequence[Any]],
    pool: ReplicaPool,
    limit: int,
    *,
    ordered: bool,
) -> Generator[Any]:
    """Yield the output of each of ``batches``. At most ``limit`` of them are in ``pool``."""
    end = object()
    begun, taken, has_ended, failure = 0, 0, False, None
    try:
        while True:
            while not has_ended and pool.can_begin() and len(pool) < limit:
                try:
                    batch = next(batches, end)
                    has_ended = batch is end
                    if not has_ended:
                        pool.begin(begun, batch, find_replicas())
                        begun += 1
                except Exception as error:  # Raise it after the outputs of earlier batches.
                    has_ended, failure = True, error
                batch = None  # The batch is freed when it has been computed.
            if not len(pool):
                break
            number = taken if ordered else next(iter(pool.ended), taken)
            if number in pool.ended:
                taken += 1
                yield pool.take(number)
            else:
                pool.wait_for_one()
        if failure is not None:
            raise failure
    except (Exception, GeneratorExit):
        pool.wait()
        raise
    finally:
        del failure  # Its traceback refers to this frame.
