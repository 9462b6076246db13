"""impl._thread_state: transfer and restoration of state."""

import gc
import weakref
from contextvars import copy_context
from functools import partial

import pytest
import torch
from hypothesis import given
from torch import nn

from impl import _thread_state
from spec_tests.checks.threads import call_in_thread
from spec_tests.strategies.thread_state import thread_states

CPU = torch.device("cpu")


def run_in(state, function, *args):
    """Run a function in a new thread as a worker does, with the state of another one."""
    worker = _thread_state.WorkerState()
    return worker.call_in(state, partial(copy_context().run, function, *args))


def state_for(device=CPU):
    return _thread_state.CallerState.read([device]).states([device])[0]


@pytest.mark.parametrize("is_worker", [True, False])
@given(state=thread_states())
def test_a_default_device_that_a_replica_sets_is_undone(topology, is_worker, state):
    def before_and_after(call_in, state):
        before = torch.get_default_device()
        call_in(state, partial(torch.set_default_device, "meta"))
        return before, torch.get_default_device()

    with state.entered(topology):
        if is_worker:
            before, after = call_in_thread(before_and_after, run_in, state_for())
        else:
            before, after = before_and_after(_thread_state.call_in, state_for())
    assert after == before


def test_replica_on_the_cpu_keeps_the_callers_current_device_and_streams(topology):
    first, last = topology.devices[0], topology.devices[-1].index
    stream = torch.Stream(first)
    with stream, torch.accelerator.device_index(last):
        state = state_for(CPU)

    def read():
        return torch.accelerator.current_device_index(), torch.accelerator.current_stream(first)

    assert call_in_thread(run_in, state, read) == (last, stream)


def test_cached_casts_are_released_when_the_replica_ends():
    weight = nn.Parameter(torch.ones(2, 2))
    reference = weakref.ref(weight)
    gc.collect()
    with torch.autocast("cpu", torch.bfloat16):
        call_in_thread(run_in, state_for(), nn.functional.linear, torch.ones(1, 2), weight)
        del weight
        assert reference() is None


def test_replica_that_disables_autocast_leaves_no_autocast_region_open():
    dtype = torch.get_autocast_dtype("cpu")

    def switch_off():
        torch.set_autocast_enabled("cpu", False)
        torch.set_autocast_dtype("cpu", dtype)

    def count_open_regions():
        run_in(state, switch_off)
        torch.autocast_increment_nesting()
        return torch.autocast_decrement_nesting()

    with torch.autocast("cpu", torch.float16):
        state = state_for()
    assert call_in_thread(count_open_regions) == 0


def test_current_device_of_an_unused_accelerator_is_not_read(monkeypatch):
    monkeypatch.setattr(torch.sim, "is_initialized", lambda: False)
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: pytest.fail("read"))
    _thread_state._find_scope.cache_clear()
    assert state_for(CPU).is_on_cpu
    _thread_state._find_scope.cache_clear()
