"""Detection of the ranks that have ended, after a collective has failed.

If a process ends, back ends report a broken connection, but not the rank of the process, and only
ranks that were connected with the process notice this. The first rank that notices it sets a key
in the store of the process group to request a check. Each live rank responds with its own key.
"""

import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from .._errors import CapturedError, capture

#: Seconds after which a rank that has not responded counts as missing. Ranks that wait in a
#: collective look once a second whether a check is requested.
_TIMEOUT = 5.0
#: Seconds between two checks for responses.
_POLL_SECONDS = 0.05
#: Keys in the store of the process group.
_REQUESTED, _ALIVE = "impl.distributed/check-requested", "impl.distributed/alive/{}"
_CHECKED = "impl.distributed/checked/{}"
#: The prefix of the keys of the next check.
_NEXT = "impl.distributed/next"


class LivenessCheck:
    """Finds out which ranks of one process group have ended."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._store: Any = group.get_group_store()
        self._rank = dist.get_rank(group)
        self._size = dist.get_world_size(group)
        self._lock = threading.Lock()
        self._responds = True

    def is_requested(self) -> bool:
        """Return whether a rank has requested the check, or the store does not respond."""
        try:
            return self._is_set(_REQUESTED)
        except RuntimeError:
            return True

    def run(self, place: str = "") -> str | None:
        """Request the check, and respond for this rank, in which ``place`` has failed.

        Return a text that names the missing ranks, or says why the store does not respond; None if
        the same place has failed in all ranks. The next check is then a new one.
        """
        try:
            self._is_set(_REQUESTED)  # Raises an error if the store does not respond.
            self._store.set_timeout(timedelta(seconds=_TIMEOUT))
            self._store.set(_REQUESTED, b"")
            self._store.set(_ALIVE.format(self._rank), b"")
            missing = self._find_silent_ranks(_ALIVE, range(self._size))
        except RuntimeError:
            return _describe_store(self._store)
        # The process that hosts the store, or removes its file, must not end before the other
        # ranks have read the responses.
        responding = set(range(self._size)).difference(missing)
        with suppress(RuntimeError):
            self._store.set(_CHECKED.format(self._rank), "" if missing else place)
            silent = self._find_silent_ranks(_CHECKED, responding)
            if place and not (missing or silent):
                places = {self._store.get(_CHECKED.format(rank)) for rank in responding}
                if places == {place.encode()}:
                    self._store = dist.PrefixStore(_NEXT, self._store)  # type: ignore[attr-defined] # not in the stubs
                    return None
        if not missing:
            return f"a collective failed, though all {self._size} ranks respond"
        names = ", ".join(map(str, missing))
        return f"rank {names} of {self._size} has ended or does not respond"

    def _find_silent_ranks(self, key: str, ranks: Iterable[int]) -> list[int]:
        """Return those of ``ranks`` that do not set their ``key`` within ``_TIMEOUT`` seconds."""
        missing = [*ranks]
        end = time.monotonic() + _TIMEOUT
        while missing and time.monotonic() < end:
            missing = [rank for rank in missing if not self._is_set(key.format(rank))]
            time.sleep(_POLL_SECONDS)
        return missing

    def _is_set(self, key: str) -> bool:
        """Return whether ``key`` is in the store.

        Raise RuntimeError if the store does not respond. A query of a store whose process is
        stopped never ends, so another thread runs it.
        """
        outcomes: list[Any] = []
        with self._lock:  # Several threads may wait for collectives, and query the store.
            if not self._responds:
                raise RuntimeError("the store does not respond")
            query = threading.Thread(
                target=lambda: outcomes.append(capture(self._store.check, [key])), daemon=True
            )
            query.start()
            query.join(_TIMEOUT)
            self._responds = not query.is_alive()
        if not outcomes or isinstance(outcomes[0], CapturedError):
            raise RuntimeError("the store does not respond")
        return bool(outcomes[0])


def _describe_store(store: Any) -> str:
    while isinstance(store, dist.PrefixStore):  # type: ignore[attr-defined] # not in the stubs
        store = store.underlying_store
    if isinstance(store, dist.FileStore):  # type: ignore[attr-defined] # not in the stubs
        return "the file of the group's store does not exist, or another process has locked it"
    return (
        "the process that hosts the group's store, usually rank 0, has ended or does not respond"
    )
