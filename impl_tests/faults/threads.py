"""Calls during which the system refuses to start another thread."""

import random
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any
from unittest import mock

from torch import Tensor

from spec_tests.harness.environment.target import Target

from .calls import Call, draw_call
from .contexts import call_in_contexts, draw_contexts
from .draws import draw_function
from .injection import describe, inject
from .verdicts import Finding, are_equal

__all__ = ["run_without_threads"]

_KIND = "no new thread"
#: The text of CPython's error.
_TEXT = "can't start new thread"
#: The function of ``threading`` that starts a thread of the system. Python 3.13 renamed it.
_START = next(
    name for name in ("_start_joinable_thread", "_start_new_thread") if hasattr(threading, name)
)


class _Starter:
    """Starts ``allowed`` threads; then raises CPython's error for a system that starts no more."""

    def __init__(self, allowed: int) -> None:
        self._left = allowed
        self._start = getattr(threading, _START)
        self.has_refused = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self._left:
            self.has_refused = True
            raise RuntimeError(_TEXT)
        self._left -= 1
        return self._start(*args, **kwargs)


def run_without_threads(target: Target, rng: random.Random) -> Iterator[Finding]:
    """Call one function twice. Yield the verdict.

    In the first call, a random number of threads can start, and each later start fails.
    """
    call = draw_call(target, draw_function(target, rng), rng)
    names, allowed = draw_contexts(rng), rng.randrange(len(call.ordinals))
    print(f"{call}: {allowed} new threads, in {names}", flush=True)
    # Replicas that have started may still run when the next call starts threads of its own.
    kept_threads = len(call.ordinals) + allowed
    run = partial(inject, call, partial(_run, call, allowed), kept_threads)
    yield call_in_contexts(names, run)


def _run(call: Call, allowed: int, expected: Sequence[Tensor]) -> Finding:
    starter = _Starter(allowed)
    with mock.patch.object(threading, _START, starter):
        try:
            found = call.compute()
        except BaseException as error:
            is_clear = isinstance(error, RuntimeError) and _TEXT in str(error)
            return Finding("error" if is_clear else "other error", _KIND, describe(error))
    if not are_equal(found, expected):
        return Finding("wrong result", _KIND)
    return Finding("right" if starter.has_refused else "not reached", _KIND)
