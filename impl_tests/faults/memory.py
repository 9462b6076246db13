"""Calls during which a simulated device begins to refuse allocations, at a random instant."""

import queue
import random
import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from spec_tests.simulator import native

from .contexts import call_in_contexts, draw_contexts
from .draws import CALLS, draw_call, draw_ordinals
from .injection import describe, inject
from .interrupts import measure
from .setting import Call, Setting
from .target import Target
from .trigger import Trigger
from .verdicts import BAD, Finding, are_equal

__all__ = ["run_out_of_memory"]

#: The number of calls in one process. In the first one, the device refuses every allocation.
_ROUNDS = 20
#: Words of the simulator's error.
_WORDS = "sim out of memory"
_KIND = "out of memory"


class _Shortage:
    """A thread that makes a device refuse allocations after a delay.

    It does so also while the main thread waits for a backward pass.
    """

    def __init__(self, device: int) -> None:
        self._device = device
        self._delays = queue.SimpleQueue[float]()
        self._is_wanted = False
        self._lock = threading.Lock()
        threading.Thread(target=self._run, name="shortage", daemon=True).start()

    def begin(self, delay: float) -> None:
        """Refuse allocations after ``delay`` seconds; at once if it is 0."""
        self._is_wanted = True
        if delay:
            self._delays.put(delay)
        else:
            self._refuse()

    def end(self) -> None:
        """Allow allocations again, also if the delay has not passed yet."""
        with self._lock:
            self._is_wanted = False
            native.extension().set_fault("", -1)

    def _run(self) -> None:
        while True:
            time.sleep(self._delays.get())
            self._refuse()

    def _refuse(self) -> None:
        with self._lock:
            if self._is_wanted:
                native.extension().set_fault("no-memory", self._device)


def run_out_of_memory(target: Target, rng: random.Random) -> Iterator[Finding]:
    """Make one device refuse allocations during calls of one function. Yield the verdicts."""
    name, ordinals, names = draw_call(target, rng), draw_ordinals(rng), draw_contexts(rng)
    device = rng.choice(ordinals)
    trigger = Trigger("forward", ValueError, (), 0)
    call = CALLS[name](Setting(target, ordinals, trigger, rng.random() < 0.3, rng))
    print(f"{name} on {ordinals}: no memory on {device}, in {names}", flush=True)
    shortage, duration = _Shortage(device), call_in_contexts(names, partial(measure, call))
    for index in range(_ROUNDS):
        delay = rng.uniform(1e-5, duration) if index else 0
        run = partial(_run, call, shortage, delay, len(ordinals))
        finding = call_in_contexts(names, run)
        yield finding
        if finding.verdict in BAD:
            return


def _run(call: Call, shortage: _Shortage, delay: float, kept_threads: int) -> Finding:
    def run_with_fault(expected: Sequence[Tensor]) -> Finding:
        try:
            shortage.begin(delay)
            found = call.compute()
        except BaseException as error:
            is_clear = isinstance(error, torch.OutOfMemoryError) and _WORDS in str(error)
            return Finding("error" if is_clear else "other error", _KIND, describe(error))
        finally:
            shortage.end()
        # The call may need no memory on the device after the instant.
        return Finding("not reached" if are_equal(found, expected) else "wrong result", _KIND)

    return inject(call, run_with_fault, kept_threads)
