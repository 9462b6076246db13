"""The replicas of a call, for a layer that waits for the other replicas, as SyncBatchNorm does."""

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any


class ReplicaGroup:
    """The replicas of one call. A layer of one of them can wait for the others.

    Args:
        modules: The replicas.
        obstacle: The reason why they cannot wait for each other; empty if they can.

    Attributes:
        ended: The indices of the replicas that have ended; None for the end of the call.
        abandoned: The indices of the replicas that fail because another one has ended.
        exchanges: The objects in which replicas wait, by class. Their method ``note_end`` is
            called with this group after the end of each replica, and of the call.
    """

    def __init__(self, modules: Sequence[Any], obstacle: str = "") -> None:
        self.modules, self.obstacle = modules, obstacle
        self.ended: list[int | None] = []
        self.abandoned: set[int] = set()
        self.exchanges: dict[type, Any] = {}

    def run(
        self, index: int, function: Callable[..., Any], args: Sequence[Any], kwargs: Any
    ) -> Any:
        """Return ``function(*args, **kwargs)``: the replica ``index``, in its own context."""
        running_replica.set((self, index))
        try:
            return function(*args, **kwargs)
        finally:
            self.end(index)

    def end(self, index: int | None = None) -> None:
        """Note that a replica, or the call, has ended."""
        # An object is in `exchanges` before a replica reads `ended`, so no end is missed.
        self.ended.append(index)
        for each in [*self.exchanges.values()]:
            each.note_end(self)


#: The group of the running replica, and the index of the replica in it; None outside of a group.
running_replica = ContextVar["tuple[ReplicaGroup, int] | None"]("running_replica", default=None)
