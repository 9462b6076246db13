"""impl._threads.state: profile functions, default devices and OpenMP pools."""

import sys
import threading

import pytest
import torch

from impl._threads import pool
from impl._threads import state as thread_state

CPU = torch.device("cpu")


def ignore_event(frame, event, argument):
    """A profile function without effect."""


def test_a_worker_has_the_profile_function_of_new_threads():
    pool.start(int).wait()  # The worker that becomes idle here runs the next function, too.
    threading.setprofile(ignore_event)
    try:
        assert pool.start(sys.getprofile).wait() is ignore_event
    finally:
        threading.setprofile(None)
    assert pool.start(sys.getprofile).wait() is None


@pytest.mark.parametrize("name", ["meta", None])
def test_a_default_device_that_a_replica_sets_is_undone(name):
    torch.set_default_device(name)
    try:
        before = torch.get_default_device()
        (state,) = thread_state.thread_states([CPU])
        thread_state.call_in(state, torch.set_default_device, ["cpu"], {})
        assert torch.get_default_device() == before
    finally:
        torch.set_default_device(None)


@pytest.mark.parametrize("count", [1, 2])
def test_a_worker_is_reused_only_if_its_operators_used_one_openmp_thread(count):
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        (state,) = thread_state.thread_states([CPU])
        found = []
        thread = threading.Thread(
            target=lambda: (
                thread_state.call_in(state, int, [], {}),
                found.append(thread_state.is_pristine()),
            )
        )
        thread.start()
        thread.join()
    finally:
        torch.set_num_threads(before)
    assert found == [count == 1]
