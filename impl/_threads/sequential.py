"""Calls that one thread makes one after the other.

    caller    call 0 ──► call 1 ──► ··· ──► wait for those that were begun elsewhere
    watchman  ····· PATIENCE: a call has not ended ──► begin all later ones in threads

What waits for a later call gets it so, if late: nothing hangs.
"""

import contextvars
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from threading import Lock, Thread
from typing import Any, NamedTuple

from .exceptions import Failure, attempt
from .locals import use_fresh_locals
from .pool import Pending, start
from .state import travels_whole

__all__ = ["PATIENCE", "Stall", "run_in_turn", "run_one_by_one"]

#: Seconds that a call may take before the later ones are begun in threads.
PATIENCE = 5.0

#: A process that computes uses more than this part of the time on its processors.
_IDLE = 0.05


class Stall(NamedTuple):
    """A call that had not ended in time.

    Attributes:
        number: Which.
        later: Those that were begun elsewhere then.
        was_idle: Whether this process had computed next to nothing since the call began.
    """

    number: int
    later: range
    was_idle: bool


def run_in_turn(calls: Sequence[Callable[[], Any]]) -> tuple[list[Any], Stall | None]:
    """Make ``calls`` in order, in the calling thread if its state travels whole.

    Returns:
        A result or Failure for each, and what was noticed. An interrupt is the last Failure:
        later calls are not begun, and what came before it is None.
    """
    succession = _Succession(calls)
    with _watchman.over(succession), use_fresh_locals() as drop_locals:
        while (call := succession.begin_next()) is not None:
            outcome = _outcome(call)
            succession.outcomes[succession.index] = outcome
            if _is_interrupt(outcome):
                return [*[None] * succession.index, outcome], None
            drop_locals()
    for index, pending in succession.elsewhere.items():
        succession.outcomes[index] = pending.wait()
    return succession.outcomes, succession.stall


def run_one_by_one(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Make ``calls`` as :func:`run_in_turn` does, whatever time they take.

    Returns:
        A result or Failure for each. An interrupt is the last, and what came before it is None.
    """
    outcomes: list[Any] = []
    with use_fresh_locals() as drop_locals:
        for call in calls:
            outcome = _outcome(call)
            if _is_interrupt(outcome):
                return [*[None] * len(outcomes), outcome]
            outcomes.append(outcome)
            drop_locals()
    return outcomes


def _outcome(call: Callable[[], Any]) -> Any:
    # The question is asked anew for each: the one before may have left a mode behind.
    return attempt(call) if travels_whole() else start(call).wait()


def _is_interrupt(outcome: Any) -> bool:
    return isinstance(outcome, Failure) and outcome.is_interrupt


class _Succession:
    """The state of one :func:`run_in_turn`.

    Attributes:
        index: The call that the calling thread makes.
        outcomes: Of all calls, in order.
        elsewhere: Those that were begun in other threads.
        stall: Why.
    """

    def __init__(self, calls: Sequence[Callable[[], Any]]) -> None:
        self.index = -1
        self.outcomes: list[Any] = [None] * len(calls)
        self.elsewhere: dict[int, Pending] = {}
        self.stall: Stall | None = None
        self._calls = calls
        self._next = 0  # What nobody has begun.
        self._lock = Lock()

    def begin_next(self) -> Callable[[], Any] | None:
        """Give the calling thread its next call; None if there is none left."""
        with self._lock:
            if self._next == len(self._calls):
                return None
            self.index, self._next = self._next, self._next + 1
            self._restart_clock()
            return self._calls[self.index]

    def seconds_left(self) -> float:
        """Tell how long the present call may still take."""
        return self._due - time.monotonic()

    def begin_later_ones(self) -> None:
        """Begin in threads of their own what has not begun, if the time is up."""
        with self._lock:
            if self.seconds_left() > 0:
                return  # The next call has just begun.
            later = range(self._next, len(self._calls))
            if later and self.stall is None:
                was_idle = time.process_time() - self._used < _IDLE * PATIENCE
                self.stall = Stall(self.index, later, was_idle)
            # Where the system gives no more threads, the caller has to go on by itself.
            self._restart_clock()
            for self._next in later:
                self.elsewhere[self._next] = start(self._calls[self._next])
            self._next = len(self._calls)

    def end(self) -> None:
        """Begin nothing any more."""
        with self._lock:
            self._calls, self._next = (), 0

    def _restart_clock(self) -> None:
        self._due, self._used = time.monotonic() + PATIENCE, time.process_time()


class _Watchman:
    """One thread that looks after all successions, while there are any."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._watched: dict[int, _Succession] = {}
        self._is_awake = False

    @contextmanager
    def over(self, succession: _Succession) -> Iterator[None]:
        """Look after ``succession`` in a ``with`` block."""
        try:
            with self._lock:
                if not self._is_awake:
                    self._wake()
                self._watched[id(succession)] = succession
            yield
        finally:
            with self._lock:
                self._watched.pop(id(succession), None)
            succession.end()

    def abandon(self) -> None:
        """Be of use to calls that go on in a forked child, which has no such thread."""
        self._lock = Lock()  # The old one may be held by a thread that was not forked.

    def _wake(self) -> None:
        _mind_forks()
        thread = Thread(target=self._look, name="parallel_apply in turn", daemon=True)
        contextvars.Context().run(thread.start)
        self._is_awake = True

    def _look(self) -> None:
        pause = PATIENCE
        while True:
            # Nobody wakes it: what begins meanwhile has at least as long as this.
            time.sleep(pause)
            watched = self._present()
            if not watched:
                return
            for succession in watched:
                with suppress(RuntimeError):  # There are no more threads to be had.
                    succession.begin_later_ones()
            pause = max(0.0, min(each.seconds_left() for each in watched))
            # They have ended long before the next look, and must not be kept until then.
            del watched, succession

    def _present(self) -> Sequence[_Succession]:
        """List what there is to look after; where there is nothing, the thread may end."""
        with self._lock:
            self._is_awake = bool(self._watched)
            return [*self._watched.values()]


_watchman = _Watchman()


@cache
def _mind_forks() -> None:
    if hasattr(os, "register_at_fork"):  # Windows has no forks.
        os.register_at_fork(after_in_child=_start_anew)


def _start_anew() -> None:
    global _watchman
    _watchman.abandon()
    _watchman = _Watchman()
