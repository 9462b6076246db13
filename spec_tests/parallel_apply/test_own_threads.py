"""parallel_apply: several modules have threads as good as new, whatever runs in the caller's."""

import asyncio
import sys
import threading
import weakref
from contextlib import contextmanager, suppress

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn

from spec_tests.harness.concurrency.leaks import all_freed, no_garbage_collection
from spec_tests.harness.concurrency.run_modules import run
from spec_tests.harness.concurrency.thread_order import PATIENCE
from spec_tests.harness.conformance.clauses import clause

SEVERAL = st.integers(2, 4)
CALLS = st.lists(SEVERAL, min_size=1, max_size=4)
HOOKS = {
    "trace": (threading.settrace, threading.gettrace, sys.settrace, sys.gettrace),
    "profile": (threading.setprofile, threading.getprofile, sys.setprofile, sys.getprofile),
}


class Scratch(nn.Module):
    """Keeps a work tensor in a ``threading.local``, and gives what it finds there."""

    def __init__(self, local, made=None, barrier=None, inner=lambda: None, fails=False):
        super().__init__()
        self.local = local
        self.made = [] if made is None else made
        self.barrier = barrier
        self.inner = inner
        self.fails = fails

    def forward(self):
        found = getattr(self.local, "buffer", None)
        self.local.buffer = torch.ones(2)
        self.made.append(weakref.ref(self.local.buffer))
        if self.barrier is not None:
            self.barrier.wait()
        self.inner()
        if self.fails:
            raise ValueError("failure")
        return found


class Counting(threading.local):
    """Begins anew in every thread."""

    def __init__(self):
        self.count = 0


class Increasing(nn.Module):
    """Counts its calls in one thread."""

    def __init__(self, local):
        super().__init__()
        self.local = local

    def forward(self):
        self.local.count += 1
        return self.local.count


class Plain(nn.Module):
    """What a tracer sees."""

    def forward(self):
        return None


class RunningLoop(nn.Module):
    """Runs a coroutine to its end, as a module that fetches something does."""

    async def fetch(self):
        await asyncio.sleep(0)
        return "fetched"

    def forward(self):
        return asyncio.run(self.fetch())


class SeeingLoop(nn.Module):
    """Gives the loop that runs in its thread."""

    def forward(self):
        return asyncio.get_running_loop()


def barrier(count, waits):
    return threading.Barrier(count, timeout=PATIENCE) if waits else None


@contextmanager
def watched(setter, getter):
    """A block in which ``setter``'s hook notes the threads that run ``Plain``."""
    seen, before = [], getter()

    def hook(frame, event, _):
        if event == "call" and frame.f_code is Plain.forward.__code__:
            seen.append(threading.get_ident())

    setter(hook)
    try:
        yield seen
    finally:
        setter(before)


@clause("parallel_apply.state.thread-locals")
@pytest.mark.parametrize("waits", [False, True], ids="all-at-once={}".format)
@given(counts=CALLS)
def test_a_module_finds_nothing_of_others_in_a_thread_local(target, topology, waits, counts):
    local = threading.local()
    for count in counts:
        scratch = Scratch(local, barrier=barrier(count, waits))
        assert run(target, topology, [scratch] * count) == [None] * count


@clause("parallel_apply.state.thread-locals")
@given(count=SEVERAL)
def test_the_callers_thread_locals_are_its_own(target, topology, count):
    local = threading.local()
    local.buffer = mine = torch.ones(2)
    assert run(target, topology, [Scratch(local)] * count) == [None] * count
    assert local.buffer is mine


@clause("parallel_apply.state.thread-locals")
def test_a_single_module_shares_the_callers_thread_locals(target, topology):
    local = threading.local()
    local.buffer = mine = torch.ones(2)
    assert run(target, topology, [Scratch(local)])[0] is mine
    assert local.buffer is not mine


@clause("parallel_apply.state.thread-locals")
@given(counts=CALLS)
def test_a_thread_local_with_a_constructor_begins_anew(target, topology, counts):
    local = Counting()
    local.count = 10
    for count in counts:
        assert run(target, topology, [Increasing(local)] * count) == [1] * count
    assert local.count == 10


@clause("parallel_apply.state.thread-locals")
@example(outer=2, inner=2, fails=False)
@given(outer=SEVERAL, inner=SEVERAL, fails=st.booleans())
def test_nested_calls_leave_each_others_thread_locals(target, topology, outer, inner, fails):
    local, kept = threading.local(), []

    def call():
        before = local.buffer
        with suppress(ValueError):
            assert run(target, topology, [Scratch(local, fails=fails)] * inner) == [None] * inner
        kept.append(local.buffer is before)

    assert run(target, topology, [Scratch(local, inner=call)] * outer) == [None] * outer
    assert kept == [True] * outer


@clause("parallel_apply.leftovers.thread-locals")
@pytest.mark.parametrize("waits", [False, True], ids="all-at-once={}".format)
@given(count=SEVERAL, fails=st.booleans())
def test_what_modules_put_into_a_thread_local_goes_with_the_call(
    target, topology, waits, count, fails
):
    local, made = threading.local(), []
    with no_garbage_collection():
        modules = [Scratch(local, made, barrier(count, waits), fails=fails)] * count
        with suppress(ValueError):
            run(target, topology, modules)
        assert len(made) == count
        assert all_freed(made)


@clause("parallel_apply.state.thread-hooks")
@pytest.mark.parametrize("kind", HOOKS)
@given(count=SEVERAL)
def test_hooks_for_new_threads_reach_every_module(target, topology, kind, count):
    run(target, topology, [Plain()] * count)
    with watched(*HOOKS[kind][:2]) as seen:
        run(target, topology, [Plain()] * count)
    assert len(seen) == count


@clause("parallel_apply.state.thread-hooks")
@pytest.mark.parametrize("kind", HOOKS)
@given(count=SEVERAL)
def test_hooks_that_are_withdrawn_reach_no_module(target, topology, kind, count):
    with watched(*HOOKS[kind][:2]) as seen:
        run(target, topology, [Plain()] * count)
        before = len(seen)
    run(target, topology, [Plain()] * count)
    assert len(seen) == before


@clause("parallel_apply.state.thread-hooks")
@pytest.mark.parametrize("kind", HOOKS)
@given(count=SEVERAL)
def test_hooks_of_the_callers_thread_stay_there(target, topology, kind, count):
    with watched(*HOOKS[kind][2:]) as seen:
        run(target, topology, [Plain()] * count)
        assert not seen
        run(target, topology, [Plain()])
        assert seen == [threading.get_ident()]


@clause("parallel_apply.state.event-loop")
@given(count=SEVERAL)
def test_modules_run_loops_of_their_own_when_a_coroutine_calls(target, topology, count):
    async def call():
        return run(target, topology, [RunningLoop()] * count)

    assert asyncio.run(call()) == ["fetched"] * count


@clause("parallel_apply.state.event-loop")
@given(rows=st.integers(2, 6))
def test_a_data_parallel_module_runs_loops_when_a_coroutine_calls(target, topology, rows):
    class Fetching(RunningLoop):
        def forward(self, x):
            assert super().forward() == "fetched"
            return x

    module, x = Fetching(), torch.arange(rows, device=topology.device(0))
    wrapped = target.data_parallel.DataParallel(module, topology.take(2))

    async def call():
        return wrapped(x)

    assert asyncio.run(call()).tolist() == x.tolist()


@clause("parallel_apply.state.event-loop")
def test_a_single_module_is_in_the_callers_loop(target, topology):
    async def call():
        return run(target, topology, [SeeingLoop()]) == [asyncio.get_running_loop()]

    assert asyncio.run(call())
