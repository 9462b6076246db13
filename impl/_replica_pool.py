"""Replicas that compute whole batches, each on its own device."""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextvars import Context, copy_context
from functools import partial
from itertools import islice
from queue import SimpleQueue
from threading import Lock
from time import monotonic
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from ._compiled import has_compiled_code
from ._containers import is_tensor_dict
from ._copy_cache import stream_readers
from ._devices import as_devices, as_target
from ._errors import CapturedError, reraise
from ._inputs import remove_markers
from ._one_device import move_output, scatter_to
from ._placement import DeviceId
from ._replica_group import ReplicaGroup, running_replica
from ._thread_state import CallerState, ThreadState, clear_old_casts
from ._threads import PendingCall, start_call
from ._wrapped_module import method_of
from .parallel_apply import format_device

#: The time between two checks of the whole state, in seconds, while batches are computed.
SAMPLE_INTERVAL = 0.1
#: The reason why the replicas cannot wait for each other.
_OBSTACLE = "in DataParallel.map: call eval() before"


class _Batch(PendingCall):
    """A batch of a pool. When it has been computed, the same replica takes the next one."""

    __slots__ = ("_pool", "arguments", "index", "number")

    def __init__(self, pool: "ReplicaPool", number: int, arguments: Any) -> None:
        super().__init__()
        self._pool, self.number, self.arguments = pool, number, arguments
        self.index = 0  # That of its replica.

    def begin(self, index: int, state: ThreadState, context: Context, call: "_Call") -> None:
        """Make the replica ``index`` compute this batch, in a copy of ``context``."""
        self.index, self._state, self.device = index, state, state.flags[-1]
        compute = self._pool.compute
        self._function = partial(context.copy().run, compute, index, call, self.arguments)
        self.arguments = None  # The arguments are freed when the batch has been computed.

    def find_next(self) -> PendingCall | None:
        return self._pool.free(self.index)

    def set_done(self) -> None:
        returned = self._pool.returned
        del self._pool  # The pool refers to this batch until its output is taken.
        self._done_lock.release()
        if returned is not None:
            returned.put(self)


#: The function of a replica that computes a batch, the group of which it is the only member, and a
#: function that returns the current stream of its device.
_Call = tuple[Callable[..., Any], ReplicaGroup, Callable[[], torch.Stream | None]]


class ReplicaPool:
    """The replicas of a wrapper. Each computes one batch at a time, in another thread.

    A replica that has computed a batch takes the next one itself, so it does not wait for the
    calling thread.

    Args:
        devices: For each replica, its device. Without devices the module computes, and no tensor
            is moved.
        output_device: The device of the outputs, if there are devices.
        method: The name of the method that computes a batch; None for the forward.
        in_turn: Whether a batch begins when the batch before it has returned.
        ordered: Whether outputs have the order of the batches.
        return_exceptions: Whether the error of a batch is its output.

    Attributes:
        devices: For each replica, its device.
        returned: The batches that have ended, in any thread; None if outputs are ordered.
        in_flight: The batches whose outputs were not taken, by number.
    """

    def __init__(
        self,
        devices: Sequence[DeviceId],
        output_device: DeviceId | None,
        method: str | None,
        in_turn: bool,
        *,
        ordered: bool,
        return_exceptions: bool,
    ) -> None:
        self.devices = as_devices(devices) or [torch.device("cpu")]
        self.returned = None if ordered else SimpleQueue[_Batch]()
        self._output_device = as_target(output_device, warns=False) if devices else None
        self._method = method
        self._in_turn, self._return_exceptions = in_turn, return_exceptions
        self._lock = Lock()
        #: The last replica that became free takes the next batch: its thread has its state.
        self._free = [*range(len(self.devices))]
        self._waiting = deque[_Batch]()
        self.in_flight: dict[int, _Batch] = {}
        self._replicas: Sequence[Any] = ()
        self._calls: Sequence[_Call] = ()
        self._caller: CallerState | None = None
        self._states: Sequence[ThreadState] = ()
        self._context = Context()
        self._process = os.getpid()
        self._next_sample = 0.0

    def accepts(self, limit: int) -> bool:
        """Return whether to take batches, up to ``limit``. To take several at a time is faster."""
        num_free = limit - len(self.in_flight)
        return 2 * num_free >= limit or (num_free > 0 and not self._waiting)

    def update(
        self,
        find_replicas: Callable[..., Sequence[Any]],
        seem_current: Callable[[Sequence[Any]], bool],
    ) -> None:
        """Compute batches that begin later with the current replicas, in the state of this thread.

        ``seem_current`` is a cheap check of the replicas. They are found anew, and samples of the
        module compared, if nothing is computed, or ``SAMPLE_INTERVAL`` after the last samples.
        """
        now = monotonic()
        samples = now >= self._next_sample or not self.in_flight
        if samples:
            self._next_sample = now + SAMPLE_INTERVAL
        elif (
            self._caller is not None and self._caller.is_current() and seem_current(self._replicas)
        ):
            context = copy_context()
            with self._lock:
                self._context = context
            return
        replicas, calls = find_replicas(samples=samples), self._calls
        in_turn = self._in_turn
        if replicas is not self._replicas:
            readers = stream_readers(tuple(self.devices))
            calls = [
                (method_of(replica, self._method), ReplicaGroup([replica], _OBSTACLE), read)
                for replica, (_, read) in zip(replicas, readers, strict=False)
            ]
            # PyTorch compiles in one thread at a time.
            in_turn = in_turn or any(map(has_compiled_code, replicas))
            clear_old_casts()
        self._caller = CallerState.read(self.devices)
        states, context = self._caller.states(self.devices, in_turn=in_turn), copy_context()
        with self._lock:
            self._replicas, self._calls, self._states = replicas, calls, states
            self._context, self._in_turn = context, in_turn

    def add(self, number: int, arguments: Any) -> None:
        """Compute a batch when a replica is free."""
        batch = _Batch(self, number, arguments)
        with self._lock:
            self.in_flight[number] = batch
            self._waiting.append(batch)
            begun = self._begin_next()
        if begun is not None:
            try:
                start_call(begun)
            except BaseException:  # The system may refuse a thread.
                with self._lock:
                    del self.in_flight[begun.number]
                    self._free.append(begun.index)
                raise

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
        batch, index = self._waiting.popleft(), self._free.pop()
        batch.begin(index, self._states[index], self._context, self._calls[index])
        return batch

    def compute(self, index: int, call: _Call, arguments: Any) -> Any:
        """Return the output of a batch."""
        device, (function, group, read_stream) = self.devices[index], call
        running_replica.set((group, 0))
        parts = _split(arguments)
        if self._output_device is None:
            args, kwargs = remove_markers(parts)
            return function(*args, **kwargs)
        args, kwargs = scatter_to(device, *parts, 0)
        output = move_output(function(*args, **kwargs), device, self._output_device)
        stream = None if self._in_turn else read_stream()
        if stream is not None:
            # A replica is free when its device has computed, so a faster one gets more batches.
            stream.synchronize()
        return output

    def take(self) -> Any:
        """Wait for the next batch. Return its output, or raise its exception."""
        if self._process != os.getpid():
            raise RuntimeError("the generator of map() was made in the parent process")
        if self.returned is None:
            batch = next(iter(self.in_flight.values()))
        else:
            batch = self.returned.get()
        outcome = batch.wait()
        del self.in_flight[batch.number]
        if not isinstance(outcome, CapturedError):
            return outcome
        device = format_device(self.devices[batch.index])
        try:
            reraise(
                outcome.pop(),
                f"in replica {batch.index} on device {device}, in batch {batch.number}",
            )
        except Exception as error:
            if not self._return_exceptions:
                raise
            return error.with_traceback(None)

    def close(self, *, waits: bool) -> None:
        """Drop the batches that have not begun. With ``waits`` wait for the others."""
        if self._process != os.getpid():
            return  # A forked child lacks the threads of the parent process.
        with self._lock:
            for batch in self._waiting:
                del self.in_flight[batch.number]
            self._waiting.clear()
            self._replicas = self._calls = self._states = ()
            self._context = Context()
        if waits:
            for batch in self.in_flight.values():
                batch.wait()
        self.in_flight.clear()


def _split(batch: Any) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    # The first condition is the usual case, and the others take longer.
    if type(batch) is Tensor or isinstance(batch, PackedSequence) or is_tensor_dict(batch):
        return (batch,), {}
    if isinstance(batch, (tuple, list)):
        return tuple(batch), {}
    return ((), batch) if isinstance(batch, Mapping) else ((batch,), {})


#: The iterators whose next step runs no code that may change the module.
_WITHOUT_CODE: set[type] = {type(iter([])), type(iter(()))}


def map_batches(
    batches: Iterator[Any],
    update: Callable[[], None],
    pool: ReplicaPool,
    limit: int,
) -> Generator[Any]:
    """Yield the outputs.

    ``update`` is called when a batch is taken after a ``yield``, or after other code of the user.
    """
    runs_code = type(batches) not in _WITHOUT_CODE
    begun, has_ended, failure = 0, False, None
    try:
        while True:
            if not has_ended and pool.accepts(limit):
                try:
                    first = begun
                    for batch in islice(batches, limit - len(pool.in_flight)):
                        if runs_code or begun == first:
                            update()
                        pool.add(begun, batch)
                        begun += 1
                        del batch  # The batch is freed when it has been computed.
                    has_ended = len(pool.in_flight) < limit
                except Exception as error:  # Raise it after the outputs of earlier batches.
                    has_ended, failure, batch = True, error, None
            if not len(pool.in_flight):
                break
            yield pool.take()
        if failure is not None:
            raise failure
    except (Exception, GeneratorExit):
        pool.close(waits=True)
        raise
    finally:
        pool.close(waits=False)
        del failure  # Its traceback refers to this frame.
