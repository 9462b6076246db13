"""Worker threads.

A pool keeps the threads, so that ``parallel_apply`` need not start them in each call.

Each function gets a thread of its own at once: an idle thread, or a new one. Functions may
therefore wait for each other, or start other functions and wait for them, without a deadlock. A
thread is reused only if it is in its initial state: it has no ``threading.local`` values of the
last function, no modes, and no OpenMP threads, which a CPU replica with several intra-op threads
starts. It gets the hooks of ``threading.settrace`` and ``threading.setprofile``.
"""

import atexit
import contextvars
import threading
from collections.abc import Callable
from functools import cache
from queue import SimpleQueue
from typing import Any

from ._errors import CapturedError, capture
from ._settings import register_fork_handler
from ._thread_locals import SINGLE_USE_THREADS, locals_counter
from ._thread_state import ThreadState, WorkerState, install_thread_hooks

#: The largest number of idle threads. If so many threads are idle, another thread ends after its
#: function.
MAX_IDLE = 64


class PendingCall:
    """A call in another thread, and its outcome: a result, or a ``CapturedError``.

    A subclass may name a call that follows this one, in the same thread if that is like a new one.
    """

    __slots__ = ("_done_lock", "_function", "_state", "device", "outcome", "thread_to_join")

    def __init__(
        self, function: Callable[[], Any] | None = None, state: ThreadState | None = None
    ) -> None:
        self._function, self._state = function, state
        #: The current device of the call.
        self.device = None if state is None else state.flags[-1]
        # Locked until there is an outcome. The worker releases this lock: any thread may release
        # a lock.
        self._done_lock = threading.Lock()
        self._done_lock.acquire()
        self.outcome: Any = None
        #: The worker's thread, if :meth:`wait` has to wait for its end.
        self.thread_to_join: threading.Thread | None = None

    def run(self, worker: WorkerState) -> None:
        """Call the function, store its outcome, and drop the function and its arguments."""
        # A thread that waits for the outcome must not keep the function alive.
        function, self._function = self._function, None
        assert function is not None
        try:
            if self._state is None:
                worker.reset()
                self.outcome = capture(function)
            else:
                self.outcome = capture(worker.call_in, self._state, function)
        except BaseException as error:  # For example, of a class whose causes cannot be read.
            self.outcome = CapturedError(error)

    def find_next(self) -> "PendingCall | None":
        """Return the call that follows when the function has ended, if there is one."""
        return None

    def set_done(self) -> None:
        self._done_lock.release()

    def wait(self) -> Any:
        """Wait for the outcome, return it and drop it. An interrupt ends the wait only."""
        self._done_lock.acquire()
        if self.thread_to_join is not None:
            self.thread_to_join.join()
        outcome, self.outcome = self.outcome, None
        return outcome


class _Worker:
    """A thread that runs the tasks in its queue, one at a time."""

    __slots__ = (
        "_count_locals",
        "_initial_local_count",
        "_pool",
        "_state",
        "device",
        "queue",
        "thread",
    )

    def __init__(self, pool: "_Pool") -> None:
        self._pool, self._state = pool, WorkerState()
        #: The current device of the last call.
        self.device: Any = None
        #: The calls to run. None ends the thread.
        self.queue = SimpleQueue[PendingCall | None]()
        # Use a daemon thread: the interpreter joins all other threads before it calls the exit
        # handler, which ends the idle workers.
        self.thread = threading.Thread(target=self._run, name="parallel_apply", daemon=True)

    def _run(self) -> None:
        self._count_locals = locals_counter()
        self._initial_local_count = self._count_locals()
        while self._run_next():
            pass
        del self._count_locals

    def _run_next(self) -> bool:
        """Run a call, and those that follow it. Return whether this thread then waits for another.

        When the caller receives an outcome, this thread has no reference to the function, and
        either runs the next call, is available for another one, or has ended.
        """
        pending = self.queue.get()
        while pending is not None:
            install_thread_hooks()
            self.device = pending.device
            pending.run(self._state)
            # A closed pool drops the call that follows.
            following = None if self._pool.is_closed else pending.find_next()
            # In this order: offer this thread for other functions, unblock the caller. The caller
            # can then rely on the first.
            is_reused = self._is_reusable() and (
                following is not None or self._pool.add_idle(self)
            )
            if not is_reused:
                # The function's thread-local values are released when this thread has ended.
                pending.thread_to_join = self.thread
                self._pool.start_or_fail(following)
            pending.set_done()
            if following is None or not is_reused:
                return is_reused
            pending = following
        return False

    def _is_reusable(self) -> bool:
        """Return whether this thread is in its initial state and may run another function."""
        return (
            not SINGLE_USE_THREADS
            and self._count_locals() == self._initial_local_count
            and self._state.is_pristine()
        )


class _Pool:
    """The worker threads of this process."""

    def __init__(self) -> None:
        # A signal handler or `__del__` may use the pool in a thread that holds the lock.
        self._lock = threading.RLock()
        self._idle: list[_Worker] = []
        #: The workers to end and to join at exit, also one that an interrupt of `start_call` has
        #: taken from `_idle` without a call. When a worker starts, ended ones are removed.
        self._workers: list[_Worker] = []
        self.is_closed = False

    def start(self, function: Callable[[], Any], state: ThreadState | None = None) -> PendingCall:
        pending = PendingCall(function, state)
        self.start_call(pending)
        return pending

    def start_call(self, pending: PendingCall) -> None:
        worker = None
        with self._lock:
            # Libraries such as cuBLAS keep memory for each pair of a thread and a device. Take the
            # last worker whose last call had this device, else the worker that is idle longest.
            for worker in reversed(self._idle):
                if worker.device == pending.device:
                    break
            if worker is not None:
                self._idle.remove(worker)
        (worker or self._new_worker()).queue.put(pending)

    def start_or_fail(self, pending: PendingCall | None) -> None:
        """Start a call that follows another one. If this fails, the error is its outcome."""
        while pending is not None:
            error = capture(self.start_call, pending)
            if not isinstance(error, CapturedError):
                return
            pending.outcome = error
            following = None if self.is_closed else pending.find_next()
            pending.set_done()
            pending = following

    def add_idle(self, worker: _Worker) -> bool:
        """Add ``worker`` to the idle workers. Return False if the pool is full or closed."""
        with self._lock:
            if self.is_closed or len(self._idle) >= MAX_IDLE:
                return False
            self._idle.append(worker)
            return True

    def close(self) -> None:
        """End all workers after their calls, wait for them, and accept no more idle workers."""
        with self._lock:
            self.is_closed = True
            self._idle.clear()
            workers = [*self._workers]
        for worker in workers:
            worker.queue.put(None)
        for worker in workers:
            worker.thread.join()

    def close_after_fork(self) -> None:
        """Close the pool of the parent process in a forked child.

        The thread that forked, the only one, may be a worker, which calls :meth:`add_idle` later.
        """
        # During the fork, another thread of the parent process may have held the old lock.
        self._lock = threading.RLock()
        self.is_closed = True

    def _new_worker(self) -> _Worker:
        _register_exit_handler()
        worker = _Worker(self)
        try:
            # Start the thread in an empty context, so that it keeps no context variables alive.
            contextvars.Context().run(worker.thread.start)
            with self._lock:
                self._workers = [each for each in self._workers if each.thread.is_alive()]
                self._workers.append(worker)
        except BaseException:
            # After an interrupt the thread may run. No caller gives it a task: end it.
            worker.queue.put(None)
            raise
        return worker


_pool = _Pool()


def start_in_thread(function: Callable[[], Any], state: ThreadState | None = None) -> PendingCall:
    """Run ``function`` in another thread, in ``state`` or that of a new thread."""
    return _pool.start(function, state)


def start_call(pending: PendingCall) -> None:
    """Run ``pending`` in another thread, immediately, and then the calls that follow it."""
    _pool.start_call(pending)


def _reset_after_fork() -> None:
    global _pool
    _pool.close_after_fork()
    _pool = _Pool()


register_fork_handler(_reset_after_fork)


@cache
def _register_exit_handler() -> None:
    # Register the handler late, when the first worker starts: exit handlers run in reverse order,
    # so this one runs before the handlers of modules that were imported earlier. A thread that
    # still runs a function during interpreter shutdown may crash the process.
    atexit.register(lambda: _pool.close())
