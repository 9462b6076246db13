"""A pool of worker threads, so that a call need not start new threads.

Every started function immediately gets its own thread, an idle or a new one. Functions that
wait for each other, or that start others and wait for them, therefore never wait for a thread.
A reused thread looks like a new one: it has no ``threading.local`` values, and the hooks of
``threading.settrace`` and ``threading.setprofile``.
"""

import atexit
import contextvars
import sysconfig
import threading
from collections.abc import Callable
from functools import cache
from queue import SimpleQueue
from typing import Any

from .._compat import register_fork_handler
from .exceptions import capture
from .locals import clear_locals, count_locals
from .state import install_thread_hooks, is_pristine

#: The largest number of idle threads. Further threads end after their function.
MAX_IDLE = 64

#: Whether each thread runs a single function, and the caller waits for its end. True on
#: free-threaded Python: PyTorch 2.12 crashes if the end of a thread frees a tensor, and objects
#: that other threads release are freed only when their own thread runs again.
SINGLE_USE_THREADS = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


class Future:
    """The outcome of a started function, once it is available."""

    __slots__ = ("_claim_lock", "_done_lock", "_task", "outcome", "thread_to_join")

    def __init__(self, function: Callable[[], Any], worker: "_Worker") -> None:
        self._task: tuple[Callable[[], Any], _Worker] | None = function, worker
        # The worker and the caller may both claim the task. The lock is acquired once and never
        # released; the thread that acquires it runs the function.
        self._claim_lock = threading.Lock()
        # Held until there is an outcome. Any thread may release such a lock, not only its holder.
        self._done_lock = threading.Lock()
        self._done_lock.acquire()
        self.outcome: Any = None
        #: The worker's thread, if :meth:`wait` has to wait for its end.
        self.thread_to_join: threading.Thread | None = None

    def claim(self) -> "tuple[Callable[[], Any], _Worker] | None":
        """Return the function and its worker to the first caller, None to later ones."""
        if not self._claim_lock.acquire(blocking=False):
            return None
        # A thread that waits for the outcome must not keep the function and its arguments alive.
        task, self._task = self._task, None
        return task

    def run_if_unclaimed(self) -> None:
        """Run the function in the calling thread, unless its worker has already claimed it."""
        task = self.claim()
        if task is not None:
            function, worker = task
            # Before the function runs, so that functions that it starts can use this worker. The
            # worker has yet to wake up for this task; later tasks wait in its queue.
            worker.become_idle()
            self.outcome = capture(function)
            self.set_done()

    def set_done(self) -> None:
        """Unblock :meth:`wait`."""
        self._done_lock.release()

    def wait(self) -> Any:
        """Wait until the function has ended, then return its outcome and drop it.

        An interrupt ends the wait, not the function.
        """
        self._done_lock.acquire()
        if self.thread_to_join is not None:
            self.thread_to_join.join()
        outcome, self.outcome = self.outcome, None
        return outcome


class _Worker:
    """A thread that runs the tasks in its queue, one at a time."""

    __slots__ = ("_initial_local_count", "_pool", "_queue", "thread")

    def __init__(self, pool: "_Pool") -> None:
        self._pool = pool
        self._queue = SimpleQueue[Future | None]()
        # A daemon: the interpreter joins other threads before it calls `_close_at_exit`, which
        # ends idle workers.
        self.thread = threading.Thread(target=self._run, name="parallel_apply", daemon=True)

    def start(self) -> None:
        """Start the thread in an empty context, so that it keeps no context variables alive."""
        contextvars.Context().run(self.thread.start)

    def submit(self, future: Future | None) -> None:
        """Wake the thread to run the function of ``future``, or to end if it is None."""
        self._queue.put(future)

    def become_idle(self) -> None:
        """Return to the pool, because another thread has claimed the task."""
        if not self._pool.add_idle(self):
            self.submit(None)

    def _run(self) -> None:
        self._initial_local_count = count_locals()
        while self._run_next():
            pass

    def _run_next(self) -> bool:
        """Run one function, and return whether to wait for another.

        When the caller receives the outcome, this thread holds no reference to the function and
        is available for the next one.
        """
        future = self._queue.get()
        if future is None:
            return False
        task = future.claim()
        if task is None:
            # The caller has claimed the task and has called `become_idle`.
            return True
        install_thread_hooks()
        future.outcome = capture(task[0])
        # The order matters: (1) release the arguments and the function's thread-local values,
        # (2) offer this thread for other tasks, (3) unblock the caller.
        del task
        clear_locals()
        again = self._is_reusable() and self._pool.add_idle(self)
        if SINGLE_USE_THREADS:
            future.thread_to_join = self.thread
        future.set_done()
        return again

    def _is_reusable(self) -> bool:
        """Return whether this thread is in the state in which it started."""
        return (
            not SINGLE_USE_THREADS
            and count_locals() == self._initial_local_count
            and is_pristine()
        )


class _Pool:
    """The workers of the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        #: Joined at the end of the process. Ended threads are removed when a new one starts.
        self._threads: list[threading.Thread] = []
        self._closed = False

    def start(self, function: Callable[[], Any]) -> Future:
        worker = self._pop_idle() or self._new_worker()
        future = Future(function, worker)
        worker.submit(future)
        return future

    def add_idle(self, worker: _Worker) -> bool:
        """Add ``worker`` to the idle ones; return False if the pool is full or closed."""
        with self._lock:
            if self._closed or len(self._idle) >= MAX_IDLE:
                return False
            self._idle.append(worker)
            return True

    def close(self) -> None:
        """End the idle workers, wait for the busy ones, and accept no more idle workers."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            threads = [*self._threads]
        for worker in idle:
            worker.submit(None)
        for thread in threads:
            thread.join()

    def close_after_fork(self) -> None:
        """Accept no more idle workers, in a forked child that has only the running thread.

        If a replica has forked, that thread is a worker of this pool, and calls :meth:`add_idle`.
        """
        self._lock = threading.Lock()  # A thread of the parent may hold the old one.
        self._closed = True

    def _pop_idle(self) -> _Worker | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _new_worker(self) -> _Worker:
        _register_exit_handler()
        worker = _Worker(self)
        worker.start()
        with self._lock:
            self._threads = [*filter(threading.Thread.is_alive, self._threads), worker.thread]
        return worker


_pool = _Pool()


def start(function: Callable[[], Any]) -> Future:
    """Run ``function`` in another thread, immediately.

    Returns:
        A future of the result of ``function``, or of a ``CapturedError`` with its exception.

    Raises:
        RuntimeError: The system cannot start another thread.
    """
    return _pool.start(function)


def _reset_after_fork() -> None:
    global _pool
    _pool.close_after_fork()
    _pool = _Pool()


register_fork_handler(_reset_after_fork)


@cache
def _register_exit_handler() -> None:
    # At the first use: exit handlers run in reverse order of their registration.
    atexit.register(_close_at_exit)


def _close_at_exit() -> None:
    # A thread that still computes during interpreter shutdown may crash the process.
    _pool.close()
