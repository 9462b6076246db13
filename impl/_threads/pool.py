"""Threads that wait for work, so that a call need not start any.

Every function that is started gets a thread of its own at once, an idle one or a new one:
functions that wait for each other, or that start others and wait for them, never wait for a
thread. It finds that thread as good as new: nothing in any ``threading.local``, and the hooks
of ``threading.settrace`` and ``threading.setprofile``.
"""

import atexit
import contextvars
import os
import sysconfig
import threading
from collections.abc import Callable
from functools import cache
from queue import SimpleQueue
from typing import Any

from .exceptions import attempt
from .locals import count_locals, drop_locals
from .state import is_pristine, take_up_hooks

__all__ = ["ENDS_WITH_WORK", "MAX_IDLE", "Pending", "start"]

#: Threads that are kept for later calls; those beyond end with their work.
MAX_IDLE = 64

#: On free-threaded Python a thread ends with its work, and its end is waited for: PyTorch 2.12
#: crashes where the end of a thread is what frees a tensor, and what others let go of while a
#: thread waits is not freed before it runs again.
ENDS_WITH_WORK = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


class Pending:
    """The outcome of a started function, once there is one."""

    __slots__ = ("_begun", "_done", "_task", "ending", "outcome")

    def __init__(self, function: Callable[[], Any], worker: "_Worker") -> None:
        self._task: tuple[Callable[[], Any], _Worker] | None = function, worker
        # Two threads may ask for the function, its own and the one that started it. The lock is
        # taken once and never released: who gets it runs the function.
        self._begun = threading.Lock()
        # Held until there is an outcome. Any thread may release such a lock, not only its holder.
        self._done = threading.Lock()
        self._done.acquire()
        self.outcome: Any = None
        #: The thread, if its end is to be waited for.
        self.ending: threading.Thread | None = None

    def begin(self) -> "tuple[Callable[[], Any], _Worker] | None":
        """Give the function and its worker to the first thread that asks, which has to run it."""
        if not self._begun.acquire(blocking=False):
            return None
        # Whoever waits here for the outcome must not keep the function, which holds the arguments.
        task, self._task = self._task, None
        return task

    def run_unless_begun(self) -> None:
        """Run the function in the calling thread, if its own has not woken up yet."""
        task = self.begin()
        if task is not None:
            function, worker = task
            # At once, so that what the function starts can have this thread. It has still to wake
            # for the present task; what it is handed meanwhile waits in its queue behind that.
            worker.rest()
            self.outcome = attempt(function)
            self.release()

    def release(self) -> None:
        """Let :meth:`wait` return."""
        self._done.release()

    def wait(self) -> Any:
        """Wait for the function to end and give its outcome away.

        An interrupt ends the waiting, not the function.
        """
        self._done.acquire()
        if self.ending is not None:
            self.ending.join()
        outcome, self.outcome = self.outcome, None
        return outcome


class _Worker:
    """A thread that runs what it is handed, one function at a time."""

    __slots__ = ("_born_with", "_handed", "_pool", "thread")

    def __init__(self, pool: "_Pool") -> None:
        self._pool = pool
        self._handed = SimpleQueue[Pending | None]()
        # A daemon: the interpreter waits for all others before it calls `_end`, and an idle thread
        # ends only when `_end` tells it to.
        self.thread = threading.Thread(target=self._serve, name="parallel_apply", daemon=True)

    def start(self) -> None:
        """Start the thread, with none of the starter's context variables to hold on to."""
        contextvars.Context().run(self.thread.start)

    def hand(self, pending: Pending | None) -> None:
        """Wake the thread to run what is ``pending``, or to end if there is nothing."""
        self._handed.put(pending)

    def rest(self) -> None:
        """Let the thread wait for other work: another one runs what it was handed."""
        if not self._pool.keep(self):
            self.hand(None)

    def _serve(self) -> None:
        self._born_with = count_locals()
        while self._take_turn():
            pass

    def _take_turn(self) -> bool:
        """Run one function; tell whether to wait for another.

        When the caller gets the outcome, this thread holds nothing of the function any more, and
        can be handed the next one.
        """
        pending = self._handed.get()
        if pending is None:
            return False
        task = pending.begin()
        if task is None:
            # The caller has taken the function, and has said by `rest` what comes next here.
            return True
        take_up_hooks()
        pending.outcome = attempt(task[0])
        # The order matters. First go the arguments, and what the function has put into locals of
        # this thread; then the thread is offered for other work; and only then the caller resumes.
        del task
        drop_locals()
        again = self._may_go_on() and self._pool.keep(self)
        if ENDS_WITH_WORK:
            pending.ending = self.thread
        pending.release()
        return again

    def _may_go_on(self) -> bool:
        """Tell whether this thread is as it was born."""
        return not ENDS_WITH_WORK and count_locals() == self._born_with and is_pristine()


class _Pool:
    """The threads that wait for work."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        #: To wait for at the end of the process; those that have ended go when another one begins.
        self._threads: list[threading.Thread] = []
        self._closed = False

    def start(self, function: Callable[[], Any]) -> Pending:
        """Run ``function`` in a thread of its own, now."""
        worker = self._idle_worker() or self._new_worker()
        pending = Pending(function, worker)
        worker.hand(pending)
        return pending

    def keep(self, worker: _Worker) -> bool:
        """Let ``worker`` wait for work, unless there are enough."""
        with self._lock:
            if self._closed or len(self._idle) >= MAX_IDLE:
                return False
            self._idle.append(worker)
            return True

    def close(self) -> None:
        """Keep no thread any more; end the idle ones and wait for the others to end."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            threads = [*self._threads]
        for worker in idle:
            worker.hand(None)
        for thread in threads:
            thread.join()

    def abandon(self) -> None:
        """Keep no thread any more, in a process that has none but the running one.

        That one may be a worker of this pool, if a replica has forked: it asks once more.
        """
        self._lock = threading.Lock()  # The old one may be held by a thread that was not forked.
        self._closed = True

    def _idle_worker(self) -> _Worker | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _new_worker(self) -> _Worker:
        _watch_process()
        worker = _Worker(self)
        worker.start()
        with self._lock:
            self._threads = [*filter(threading.Thread.is_alive, self._threads), worker.thread]
        return worker


_pool = _Pool()


def start(function: Callable[[], Any]) -> Pending:
    """Run ``function`` in a thread of its own, beginning at once.

    Returns:
        What to wait for: the result of ``function``, or a ``Failure`` with its exception.

    Raises:
        RuntimeError: The system gives no more threads.
    """
    return _pool.start(function)


@cache
def _watch_process() -> None:
    """Mind forks and the end of the process, from the first thread on."""
    if hasattr(os, "register_at_fork"):  # Windows has no forks.
        os.register_at_fork(after_in_child=_start_anew)
    atexit.register(_end)


def _start_anew() -> None:
    global _pool
    _pool.abandon()
    _pool = _Pool()


def _end() -> None:
    # A thread that still computes while the interpreter is torn down may crash the process.
    _pool.close()
