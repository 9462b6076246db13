"""Sequential execution of calls."""

from collections.abc import Callable, Sequence
from typing import Any

from .exceptions import CapturedError, capture
from .locals import isolate_locals
from .pool import start
from .state import can_workers_inherit_state


def run_sequentially(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run ``calls`` one after the other.

    Calls run in the calling thread, or in workers if the calling thread has state that workers
    cannot inherit. A call that waits for a later call blocks forever.

    Return a result or a ``CapturedError`` for each call. After an interrupt, such as a
    KeyboardInterrupt, later calls do not begin: the last entry is the interrupt, and all entries
    before it are None.
    """
    outcomes: list[Any] = []
    with isolate_locals() as clear_locals:
        for call in calls:
            # Check before each call, because the previous call may have left a mode active.
            outcome = capture(call) if can_workers_inherit_state() else start(call).wait()
            if isinstance(outcome, CapturedError) and outcome.is_interrupt:
                return [*[None] * len(outcomes), outcome]
            outcomes.append(outcome)
            clear_locals()
    return outcomes
