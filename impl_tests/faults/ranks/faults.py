"""The fault of one rank, which occurs at the chosen place of the program."""

import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist

from .cases import Case

__all__ = ["INJECTED", "RankFault"]

#: The text of injected errors. It names no rank.
INJECTED = "injected error"
#: The collectives of torch.distributed that impl.distributed calls.
_FUNCTIONS = ("all_gather", "all_reduce", "broadcast")
#: Place -> the phase of the program, the collective, and the index of its call in the phase. The
#: place `reduction`, which is any collective in backward, is not included.
_PLACES = {
    "constructor": ("constructor", "all_gather", 0),
    "buffers": ("forward", "broadcast", 0),
    "exchange": ("forward", "all_gather", 0),
    "gather": ("forward", "all_gather", -1),
    "mean": ("mean", "all_gather", 0),
}


class RankFault:
    """The fault of one rank.

    Args:
        case: The case.
        rank: This rank.
        notify: A function that is called just before the fault occurs.
        wait: A function that returns when the rank may continue.

    Attributes:
        phase: The part of the program that runs: `constructor`, `forward`, `mean` or `backward`.
        is_armed: Whether the fault may occur. A fault in the constructor may occur from the start.
    """

    def __init__(
        self, case: Case, rank: int, notify: Callable[[], None], wait: Callable[[], None]
    ) -> None:
        self._case = case
        self._how = dict(case.lost).get(rank)
        self._where = case.where
        if rank == case.raising:
            self._how, self._where = "raises", case.raises_where
        self._notify, self._wait = notify, wait
        # The numbers of calls in this step and in the previous step: (phase, function) -> number.
        self._calls: Counter[tuple[str, str]] = Counter()
        self._calls_before: Counter[tuple[str, str]] = Counter()
        self.phase = "constructor"
        self.is_armed = case.where == "constructor"

    def begin_step(self, is_armed: bool) -> None:
        """Reset the counts of collectives for a new step. The fault may occur if ``is_armed``."""
        self._calls, self._calls_before = Counter(), self._calls
        self.is_armed = is_armed

    def reach(self, place: str) -> None:
        """Inject the fault if it may occur and ``place`` is the chosen place."""
        if self.is_armed and place == self._where and self._how is not None:
            self.is_armed = False
            self._notify()
            self._act(self._how)

    @contextmanager
    def watch_collectives(self) -> Iterator[None]:
        """Make the collectives of torch.distributed call ``reach`` inside a ``with`` block."""
        originals = {name: getattr(dist, name) for name in _FUNCTIONS}
        for name, original in originals.items():
            setattr(dist, name, self._wrap(name, original))
        try:
            yield
        finally:
            for name, original in originals.items():
                setattr(dist, name, original)

    def _wrap(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            place = self._place_of_call(name)
            if place is not None and not self._case.is_begun:
                self.reach(place)
            work = original(*args, **kwargs)
            if place is not None and self._case.is_begun:
                self.reach(place)
            return work

        return call

    def _place_of_call(self, name: str) -> str | None:
        """Count a call of ``name``. Return its place if the fault occurs there, else None."""
        index = self._calls[self.phase, name]
        self._calls[self.phase, name] += 1
        if self._where == "reduction":
            total = sum(n for (phase, _), n in self._calls_before.items() if phase == "backward")
            done = sum(n for (phase, _), n in self._calls.items() if phase == "backward") - 1
            is_chosen = self.phase == "backward" and total and done == self._case.draw % total
            return "reduction" if is_chosen else None
        phase, function, wanted = _PLACES.get(self._where, ("", "", 0))
        if wanted < 0:
            wanted += self._calls_before[phase, function]
        is_chosen = (self.phase, name, index) == (phase, function, wanted)
        return self._where if is_chosen else None

    def _act(self, how: str) -> None:
        if how == "os._exit":
            os._exit(3)
        elif how == "sys.exit":
            sys.exit(3)
        elif how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        elif how == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif how == "stays away":
            self._wait()
        else:
            raise (RuntimeError if how == "fails" else ValueError)(INJECTED)
