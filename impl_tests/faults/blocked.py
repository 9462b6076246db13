"""Replicas that block until the caller is interrupted."""

import random
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import FrameType

from torch import Tensor

from spec_tests.harness.environment.target import Target

from .calls import Call, draw_call
from .contexts import call_in_contexts, draw_contexts
from .draws import MODULE_CALLS, draw_function
from .injection import describe, inject
from .trigger import Trigger
from .verdicts import Finding, are_equal

__all__ = ["run_blocked"]

_KIND = "blocked replica"
#: Seconds between two interrupts.
_INTERVAL = 0.05
#: The largest allowed number of interrupts until the call ends. The first one ends the replica in
#: the calling thread, and the second one ends the wait for the other replicas.
_MAX_INTERRUPTS = 2


class _ReleasedError(Exception):
    """The error of a replica after it was released."""


class _Interrupts:
    """A signal handler that raises KeyboardInterrupt, and counts the interrupts.

    Attributes:
        count: The number of interrupts.
    """

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        self.count += 1
        raise KeyboardInterrupt

    @contextmanager
    def send(self) -> Iterator[None]:
        """Interrupt the main thread at regular intervals inside a ``with`` block."""
        signal.signal(signal.SIGALRM, self)
        signal.setitimer(signal.ITIMER_REAL, _INTERVAL, _INTERVAL)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)


def run_blocked(target: Target, rng: random.Random) -> Iterator[Finding]:
    """Block replicas of one call until the caller is interrupted. Yield the verdict."""
    name, names = draw_function(target, rng), draw_contexts(rng)
    while name not in MODULE_CALLS:
        name = draw_function(target, rng)
    call = draw_call(target, name, rng)
    ordinals = call.ordinals
    chosen = rng.sample(ordinals, rng.randint(1, len(ordinals)))
    # Use a lock: an interrupt of `threading.Event.wait` may break the event.
    gate = threading.Lock()
    gate.acquire()

    def block() -> Exception:
        gate.acquire()
        gate.release()
        return _ReleasedError()

    trigger = Trigger("forward", block, chosen, 0)
    call.add_trigger(trigger, rng, containers=rng.random() < 0.3)
    is_warm = rng.random() < 0.5
    print(f"{call}: {chosen} block, in {names}", flush=True)
    run_with_fault = partial(_run, call, trigger, gate)
    # The target may keep two threads for each replica: the next call may start new threads before
    # the released replicas end.
    run = partial(inject, call, run_with_fault, 2 * len(ordinals), is_warm=is_warm)
    yield call_in_contexts(names, run)


def _run(
    call: Call, trigger: Trigger, gate: threading.Lock, expected: Sequence[Tensor]
) -> Finding:
    interrupts = _Interrupts()
    with trigger.arm():
        try:
            with interrupts.send():
                found = call.compute()
        except KeyboardInterrupt:
            is_prompt = interrupts.count <= _MAX_INTERRUPTS
            text = f"after {interrupts.count} interrupts"
            return Finding("error" if is_prompt else "other error", _KIND, text)
        except BaseException as error:
            return Finding("other error", _KIND, describe(error))
        finally:
            gate.release()
    return Finding("not reached" if are_equal(found, expected) else "wrong result", _KIND)
