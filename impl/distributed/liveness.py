"""Detection of the ranks that have ended, after a collective has failed.

If a process ends, back ends report a broken connection, but not the rank of the process, and only
ranks that were connected with it notice. The first rank that notices requests a check in the store
of the process group, and all live ranks respond there.
"""

import time
from datetime import timedelta
from typing import Any

import torch.distributed as dist

#: Seconds after which a rank that has not responded counts as missing. Ranks that wait in a
#: collective look once a second whether a check is requested.
_TIMEOUT = 5.0
#: Seconds between two checks for responses.
_POLL_SECONDS = 0.05
#: Keys in the store of the process group.
_REQUESTED, _ALIVE = "impl.distributed/check-requested", "impl.distributed/alive/{}"


class LivenessCheck:
    """Finds out which ranks of one process group have ended."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._store: Any = group.get_group_store()
        self._rank = dist.get_rank(group)
        self._size = dist.get_world_size(group)

    def is_requested(self) -> bool:
        """Return whether a rank has requested the check."""
        try:
            return bool(self._store.check([_REQUESTED]))
        except RuntimeError:
            return True  # The store does not respond, so the process that hosts it has ended.

    def run(self) -> str:
        """Request the check, and respond for this rank. Return a text with the missing ranks."""
        try:
            self._store.set_timeout(timedelta(seconds=_TIMEOUT))
            self._store.set(_REQUESTED, b"")
            self._store.set(_ALIVE.format(self._rank), b"")
            return self._describe(self._missing_ranks())
        except RuntimeError:
            return "the process that hosts the group's store, usually rank 0, has ended"

    def _missing_ranks(self) -> list[int]:
        missing = list(range(self._size))
        end = time.monotonic() + _TIMEOUT
        while missing and time.monotonic() < end:
            missing = [rank for rank in missing if not self._store.check([_ALIVE.format(rank)])]
            time.sleep(_POLL_SECONDS)
        return missing

    def _describe(self, missing: list[int]) -> str:
        if not missing:
            return f"a collective failed, though all {self._size} ranks respond"
        names = ", ".join(map(str, missing))
        return f"rank {names} of {self._size} has ended or does not respond"
