"""Calls that the calling thread makes one after the other."""

from collections.abc import Callable, Sequence
from typing import Any

from .exceptions import Failure, attempt
from .locals import use_fresh_locals
from .pool import start
from .state import travels_whole

__all__ = ["run_sequentially"]


def run_sequentially(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Make ``calls`` in order, in the calling thread if all of its state travels.

    A call that waits for a later one waits for ever.

    Returns:
        A result or a ``Failure`` for each call. An interrupt ends the sequence: it is the last
        entry, later calls do not begin, and the entries before it are None.
    """
    outcomes: list[Any] = []
    with use_fresh_locals() as drop_locals:
        for call in calls:
            # Asked before each call: the call before may have left a mode behind.
            outcome = attempt(call) if travels_whole() else start(call).wait()
            if isinstance(outcome, Failure) and outcome.is_interrupt:
                return [*[None] * len(outcomes), outcome]
            outcomes.append(outcome)
            drop_locals()
    return outcomes
