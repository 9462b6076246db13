"""impl._workers: which thread begins a function, its own or the caller's."""

import threading
from functools import partial

import pytest

from impl import _workers

#: Seconds after which something that should happen at once is taken to hang.
PATIENCE = 20


@pytest.fixture
def pool():
    pool = _workers._Pool()
    yield pool
    pool.close()


class Sleeper:
    """A worker that does not wake up."""

    rested = 0

    def rest(self):
        self.rested += 1


def test_a_function_that_no_thread_has_begun_runs_in_the_callers():
    worker = Sleeper()
    pending = _workers.Pending(threading.get_ident, worker)
    pending.run_unless_begun()
    assert pending.wait() == threading.get_ident()
    assert pending.begin() is None
    assert worker.rested == 1


def test_a_function_that_has_begun_is_left_to_its_thread(pool):
    begun, release = threading.Event(), threading.Event()

    def identify():
        begun.set()
        return release.wait(PATIENCE) and threading.get_ident()

    pending = pool.start(identify)
    assert begun.wait(PATIENCE)
    pending.run_unless_begun()
    release.set()
    assert pending.wait() not in (threading.get_ident(), False)


def test_threads_whose_work_was_taken_are_handed_the_next(pool):
    for number in range(1000):
        pending = [pool.start(partial(divmod, number, 3)) for _ in range(3)]
        for each in pending:
            each.run_unless_begun()
        assert [each.wait() for each in pending] == [divmod(number, 3)] * 3
    assert len(pool._threads) == 3


def test_a_closed_pool_ends_threads_whose_work_was_taken(pool):
    pool._closed = True
    pending = [pool.start(int) for _ in range(3)]
    threads = [*pool._threads]
    for each in pending:
        each.run_unless_begun()
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads)
