"""Interrupts at random instants of calls.

A timer of the process sends SIGALRM, or a child process sends SIGINT. When the signal arrives, the
main thread may be computing, waiting, or passing work to another thread. The handler of both
signals raises KeyboardInterrupt, as Python's own handler of SIGINT does.
"""

import os
import random
import signal
import statistics
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import FrameType

from torch import Tensor

from spec_tests.harness.environment.target import Target

from .calls import Call, draw_call
from .contexts import call_in_contexts, draw_contexts
from .draws import draw_function
from .injection import describe, inject
from .verdicts import BAD, Finding, are_equal

__all__ = ["measure", "run_interrupts"]

#: The largest number of interrupted calls in one process.
_ROUNDS = 20
#: The number of calls to time. Their median duration limits the instants of the interrupts.
_TIMED_CALLS = 5
_KIND = "interrupt"
_FORMAT = "d"


class _Interrupt:
    """A signal handler that raises KeyboardInterrupt at the first signal after each ``arm()``.

    Attributes:
        place: The file and line where KeyboardInterrupt was raised; None if no signal has arrived
            since ``arm()``.
    """

    def __init__(self) -> None:
        self._is_armed = False
        self.place: str | None = None

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        assert frame is not None
        # `copyreg._slotnames` discards all exceptions, also KeyboardInterrupt.
        if self._is_armed and frame.f_globals["__name__"] != "copyreg":
            self._is_armed = False
            self.place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
            raise KeyboardInterrupt

    def arm(self) -> None:
        """Make the next signal raise KeyboardInterrupt."""
        self._is_armed, self.place = True, None

    def disarm(self) -> None:
        """Ignore all signals until the next ``arm()``."""
        self._is_armed = False


def run_interrupts(target: Target, rng: random.Random) -> Iterator[Finding]:
    """Interrupt calls of one function at random instants. Yield the verdicts."""
    call = draw_call(target, draw_function(target, rng), rng)
    names = draw_contexts(rng)
    source = _start_timer if rng.random() < 0.5 else _fork_sender()
    print(f"{call}, in {names}, by {source.__name__}", flush=True)
    interrupt = _Interrupt()
    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGALRM, interrupt)
    duration = call_in_contexts(names, lambda: measure(call))
    for _ in range(_ROUNDS):
        delay = rng.uniform(0, 1.2 * duration)

        def start(delay: float = delay) -> None:
            interrupt.arm()
            source(delay)

        run = partial(_run, call, start, interrupt, len(call.ordinals))
        finding = call_in_contexts(names, run)
        yield finding
        if finding.verdict in BAD:
            return


def measure(call: Call) -> float:
    """Return the median duration of a call in seconds."""
    durations = []
    for _ in range(_TIMED_CALLS):
        start = time.perf_counter()
        call.compute()
        durations.append(time.perf_counter() - start)
    call.drop_grads()
    return statistics.median(durations)


def _run(
    call: Call, start: Callable[[], None], interrupt: _Interrupt, kept_threads: int
) -> Finding:
    def run_with_fault(expected: Sequence[Tensor]) -> Finding:
        try:
            try:
                start()
                found = call.compute()
            finally:
                interrupt.disarm()
        except KeyboardInterrupt:
            return Finding("error", _KIND, f"at {interrupt.place}")
        except BaseException as error:
            return Finding("other error", _KIND, f"at {interrupt.place}: {describe(error)}")
        if interrupt.place is not None:
            return Finding("lost", _KIND, f"at {interrupt.place}")
        return Finding("not reached" if are_equal(found, expected) else "wrong result", _KIND)

    return inject(call, run_with_fault, kept_threads)


def _start_timer(delay: float) -> None:
    signal.setitimer(signal.ITIMER_REAL, max(delay, 1e-6))


def _fork_sender() -> Callable[[float], None]:
    """Fork a child process. Return a function that makes the child send SIGINT after a delay."""
    read_end, write_end = os.pipe()
    parent = os.getpid()
    if os.fork() == 0:
        os.close(write_end)
        size = struct.calcsize(_FORMAT)
        while text := os.read(read_end, size):
            time.sleep(struct.unpack(_FORMAT, text)[0])
            os.kill(parent, signal.SIGINT)
        os._exit(0)
    os.close(read_end)

    def send(delay: float) -> None:
        os.write(write_end, struct.pack(_FORMAT, delay))

    return send
