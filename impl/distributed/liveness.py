"""Which ranks of a group are still there, asked when a collective has failed.

Back ends tell which connection broke, not which process ended, and only neighbours notice. So
the first that notices calls the roll in the group's store; whoever is there answers.
"""

import time
from datetime import timedelta
from typing import Any

import torch.distributed as dist

__all__ = ["RollCall"]

#: Seconds for which a rank that is called may be busy. Everyone asks the store once a second.
_PATIENCE = 5.0
_PAUSE = 0.05
#: Keys of the store.
_CALLED, _HERE = "impl.distributed/called", "impl.distributed/here/{}"


class RollCall:
    """The roll of one group.

    Args:
        group: The group.
    """

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._store: Any = group.get_group_store()
        self._rank = dist.get_rank(group)
        self._size = dist.get_world_size(group)

    def is_called(self) -> bool:
        """Tell whether some rank has met a failure."""
        try:
            return bool(self._store.check([_CALLED]))
        except RuntimeError:
            return True  # Who held the store is gone.

    def answer(self) -> None:
        """Say that this rank is there."""
        self._store.set(_HERE.format(self._rank), b"")

    def missing(self) -> str:
        """Call the roll, and name in words the ranks that have not answered in time."""
        try:
            self._store.set_timeout(timedelta(seconds=_PATIENCE))
            self._store.set(_CALLED, b"")
            self.answer()
            return self._named(self._silent())
        except RuntimeError:
            return "the process that holds the group's store, rank 0 as a rule, has ended"

    def _silent(self) -> list[int]:
        silent = list(range(self._size))
        end = time.monotonic() + _PATIENCE
        while silent and time.monotonic() < end:
            silent = [rank for rank in silent if not self._store.check([_HERE.format(rank)])]
            time.sleep(_PAUSE)
        return silent

    def _named(self, silent: list[int]) -> str:
        if not silent:
            return f"all {self._size} ranks are there, but a collective failed"
        names = ", ".join(map(str, silent))
        return f"rank {names} of {self._size} has ended or does not answer"
