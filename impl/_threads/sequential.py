"""Sequential execution of calls in the calling thread."""

from collections.abc import Callable, Sequence
from typing import Any

from .exceptions import CapturedError, capture
from .locals import isolate_locals
from .pool import start
from .state import is_fully_transferable


def run_sequentially(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Make ``calls`` in order, in the calling thread if all of its state is transferable.

    A call that waits for a later one blocks forever.

    Returns:
        A result or a ``CapturedError`` for each call. An interrupt ends the sequence: it is the
        last entry, later calls do not begin, and the entries before it are None.
    """
    outcomes: list[Any] = []
    with isolate_locals() as clear_locals:
        for call in calls:
            # Checked before each call: the previous call may have left a mode active.
            outcome = capture(call) if is_fully_transferable() else start(call).wait()
            if isinstance(outcome, CapturedError) and outcome.is_interrupt:
                return [*[None] * len(outcomes), outcome]
            outcomes.append(outcome)
            clear_locals()
    return outcomes
