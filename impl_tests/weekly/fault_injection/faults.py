"""The kinds of faults: interrupts, refused resources and blocked replicas."""

import itertools
import random
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any
from unittest import mock

import torch

from impl_tests.helpers.cases import ORDINALS, Net
from spec_tests.simulator import native

__all__ = ["KINDS", "Fault"]

#: The number of interrupted calls in one trial.
_INTERRUPTED_CALLS = 20
#: Seconds between two interrupts of a call whose replicas block.
_INTERVAL = 0.05
#: The largest allowed number of interrupts until such a call ends. 2 of 800 calls needed a second
#: one.
_MAX_INTERRUPTS = 2
#: A part of the text of the simulator's error.
_NO_MEMORY = "sim out of memory"
#: The text of CPython's error.
_NO_THREAD = "can't start new thread"
#: The function of ``threading`` that starts a thread of the system. Python 3.13 renamed it.
_START = next(
    name for name in ("_start_joinable_thread", "_start_new_thread") if hasattr(threading, name)
)


class Fault:
    """A fault that may occur in a ``with`` block.

    Attributes:
        has_occurred: Whether the fault has occurred.
        extra_threads: How many threads the target may keep besides one for each replica.
        place: Where the fault occurred, for people.
        returned: The verdict on a call that returned although the fault has occurred.
    """

    returned = "lost"

    def __init__(self, extra_threads: int = 0) -> None:
        self.has_occurred = False
        self.extra_threads = extra_threads
        self.place = ""

    def __enter__(self) -> None:
        """Allow the fault."""

    def __exit__(self, *_: object) -> None:
        """Forbid the fault."""

    def is_reported_by(self, error: BaseException) -> bool:
        """Return whether an error of the call reports this fault."""
        raise NotImplementedError


class _Interrupt(Fault):
    """KeyboardInterrupts that a signal handler raises, as Python's own handler of SIGINT does.

    Args:
        delay: Seconds until the first signal.
        interval: Seconds between two signals; 0 for only one signal.
    """

    def __init__(self, delay: float, interval: float = 0.0) -> None:
        super().__init__()
        self._times = max(delay, 1e-6), interval
        self._is_armed = False
        self._count = 0

    def __enter__(self) -> None:
        signal.signal(signal.SIGALRM, self._handle)
        self._is_armed = True
        signal.setitimer(signal.ITIMER_REAL, *self._times)

    def __exit__(self, *_: object) -> None:
        self._is_armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        assert frame is not None
        # `copyreg._slotnames` discards all exceptions, also KeyboardInterrupt. So does Python in
        # callbacks of weak references, which `_weakrefset` has.
        if self._is_armed and frame.f_globals["__name__"] not in ("copyreg", "_weakrefset"):
            self._is_armed = self._times[1] > 0
            self._count += 1
            self.has_occurred = True
            self.place = f"{self._count} at {frame.f_code.co_filename}:{frame.f_lineno}"
            raise KeyboardInterrupt

    def is_reported_by(self, error: BaseException) -> bool:
        return isinstance(error, KeyboardInterrupt) and self._count <= _MAX_INTERRUPTS


def _interrupts(rng: random.Random, seconds: float) -> Iterator[Fault]:
    """Interrupt the call at random instants."""
    for _ in range(_INTERRUPTED_CALLS):
        yield _Interrupt(rng.uniform(0, 1.2 * seconds))


class _BlockedReplicas(_Interrupt):
    """Replicas of :class:`Net` that block until the caller is interrupted.

    Args:
        ordinals: The devices of the replicas.
    """

    def __init__(self, ordinals: list[int]) -> None:
        super().__init__(_INTERVAL, _INTERVAL)
        # The next call may start new threads before the released replicas end.
        self.extra_threads = len(ORDINALS)
        self._ordinals = ordinals
        # Use a lock: an interrupt of `threading.Event.wait` may break the event.
        self._gate = threading.Lock()
        self._gate.acquire()
        self._patch = mock.patch.object(Net, "forward", self._forward_or_block(Net.forward))

    def __enter__(self) -> None:
        self._patch.start()
        super().__enter__()

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._patch.stop()
        self._gate.release()

    def _forward_or_block(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        def call(net: Net, x: torch.Tensor) -> Any:
            if x.device.index in self._ordinals:
                self._gate.acquire()
                self._gate.release()
                raise LookupError("the error of a replica that has blocked")
            return forward(net, x)

        return call


def _blocked(rng: random.Random, seconds: float) -> Iterator[Fault]:
    """Block random replicas of the first call, then of one whose threads run already."""
    for _ in range(2):
        yield _BlockedReplicas(rng.sample(ORDINALS, rng.randint(1, len(ORDINALS))))


class _OutOfMemory(Fault):
    """A device that allows only some allocations."""

    def __init__(self, ordinal: int, allocations: int) -> None:
        super().__init__()
        self._ordinal, self._allocations = ordinal, allocations
        self.place = f"after {allocations} allocations on {ordinal}"

    def __enter__(self) -> None:
        native.extension().set_fault("no-memory", self._ordinal, self._allocations)

    def __exit__(self, *error: object) -> None:
        native.extension().set_fault("", -1)
        # A call that succeeds did not need a further allocation.
        self.has_occurred = error[0] is not None

    def is_reported_by(self, error: BaseException) -> bool:
        return isinstance(error, torch.OutOfMemoryError) and _NO_MEMORY in str(error)


def _out_of_memory(rng: random.Random, seconds: float) -> Iterator[Fault]:
    """Allow no allocation in the first call, and one more in each further call that fails."""
    ordinal = rng.choice(ORDINALS)
    for allocations in itertools.count():
        fault = _OutOfMemory(ordinal, allocations)
        yield fault
        if not fault.has_occurred:
            return


class _NoThreads(Fault):
    """A system that starts only ``allowed`` threads."""

    returned = "right"

    def __init__(self, allowed: int) -> None:
        # Replicas that have started may still run when the next call starts threads of its own.
        super().__init__(extra_threads=allowed)
        self.place = f"after {allowed} threads"
        self._left = allowed
        self._start = getattr(threading, _START)
        self._patch = mock.patch.object(threading, _START, self._call)

    def __enter__(self) -> None:
        self._patch.start()

    def __exit__(self, *_: object) -> None:
        self._patch.stop()

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        if not self._left:
            self.has_occurred = True
            raise RuntimeError(_NO_THREAD)
        self._left -= 1
        return self._start(*args, **kwargs)

    def is_reported_by(self, error: BaseException) -> bool:
        return isinstance(error, RuntimeError) and _NO_THREAD in str(error)


def _no_threads(rng: random.Random, seconds: float) -> Iterator[Fault]:
    """Allow a random number of new threads in the first call."""
    yield _NoThreads(rng.randrange(len(ORDINALS)))


#: For each kind of a trial: a function that yields the faults of repetitions of a call. Its
#: arguments are a source of random numbers, and the seconds that the call takes.
KINDS: dict[str, Callable[[random.Random, float], Iterator[Fault]]] = {
    "interrupt": _interrupts,
    "memory": _out_of_memory,
    "thread": _no_threads,
    "blocked": _blocked,
}
