"""Futures that do not wait for ever for a process that is gone."""

import threading
import time
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.futures import Future

from ._roll_call import RollCall

__all__ = ["Watch"]

#: Seconds between two looks.
_PAUSE = 1.0


class Watch:
    """A thread that looks, while there are sums to wait for, whether a rank has failed.

    It answers the roll call for this rank, whose own thread waits inside of autograd, and ends
    that waiting. It ends itself when nothing is waited for.

    Args:
        roll_call: Whom to ask.
        loss: Makes the error to be raised from that of a back end.
    """

    def __init__(self, roll_call: RollCall, loss: Callable[[RuntimeError], RuntimeError]) -> None:
        self._roll_call = roll_call
        self._loss = loss
        self._waiting: dict[int, Future[Any]] = {}
        self._lock = threading.Lock()
        self._is_running = False

    def over(self, inner: Future[Any]) -> Future[Tensor]:
        """Give a future of the first tensor of ``inner``, which fails when a rank has."""
        outer: Future[Tensor] = Future()
        with self._lock:
            self._waiting[id(outer)] = outer
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, daemon=True).start()
        inner.add_done_callback(lambda done: self._settle(outer, done))
        # Only what a callback raises is an error to those who wait in C++.
        awaited: Future[Tensor] = outer.then(lambda done: done.value())
        return awaited

    def _settle(self, outer: Future[Tensor], inner: Future[Any]) -> None:
        try:
            (found,) = inner.value()
        except RuntimeError as error:
            self._fail(outer, error)
        else:
            if self._is_awaited(outer):
                outer.set_result(found)

    def _fail(self, outer: Future[Tensor], error: RuntimeError) -> None:
        if self._is_awaited(outer):
            outer.set_exception(self._loss(error))  # type: ignore[arg-type] # torch takes any

    def _is_awaited(self, outer: Future[Tensor]) -> bool:
        """Tell whether nobody else has settled it, and that it is being settled."""
        with self._lock:
            return self._waiting.pop(id(outer), None) is not None

    def _run(self) -> None:
        while self._goes_on():
            time.sleep(_PAUSE)
            if self._waiting and self._roll_call.is_called():
                for outer in list(self._waiting.values()):
                    self._fail(outer, RuntimeError("another rank has met a failure"))

    def _goes_on(self) -> bool:
        with self._lock:
            self._is_running = bool(self._waiting)
            return self._is_running
