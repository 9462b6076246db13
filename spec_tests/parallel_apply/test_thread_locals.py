"""parallel_apply: thread-locals, thread hooks and event loops of several modules."""

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

from spec_tests import checks
from spec_tests.checks.leaks import check_freed, disable_gc
from spec_tests.checks.thread_order import TIMEOUT
from spec_tests.machine.clauses import clause
from spec_tests.parallel_apply.run_modules import Lambda, run

#: Numbers of modules in a call that uses several threads.
SEVERAL = st.integers(2, 4)
#: Lists with the number of modules of each of several successive calls.
CALLS = st.lists(SEVERAL, min_size=1, max_size=4)
#: For each hook: setter and getter for new threads, then setter and getter for this thread.
HOOKS = {
    "trace": (threading.settrace, threading.gettrace, sys.settrace, sys.gettrace),
    "profile": (threading.setprofile, threading.getprofile, sys.setprofile, sys.getprofile),
}


class ThreadLocalBuffer(nn.Module):
    """A module that stores a tensor in a ``threading.local`` and returns the previous one."""

    def __init__(self, local, references=None, barrier=None, inner=lambda: None, fails=False):
        super().__init__()
        self.local = local
        self.references = [] if references is None else references
        self.barrier = barrier
        self.inner = inner
        self.fails = fails

    def forward(self):
        previous = getattr(self.local, "buffer", None)
        self.local.buffer = torch.ones(2)
        self.references.append(weakref.ref(self.local.buffer))
        if self.barrier is not None:
            self.barrier.wait()
        self.inner()
        if self.fails:
            raise ValueError("failure")
        return previous


def traced():
    """Do nothing. The hook of `record_threads` detects a call."""


async def fetch():
    await asyncio.sleep(0)
    return "fetched"


def barrier(count, concurrent):
    return threading.Barrier(count, timeout=TIMEOUT) if concurrent else None


@contextmanager
def record_threads(setter, getter):
    """Set a hook that lists the ids of threads that call `traced`, and yield the list."""
    threads, before = [], getter()

    def hook(frame, event, _):
        if event == "call" and frame.f_code is traced.__code__:
            threads.append(threading.get_ident())

    setter(hook)
    try:
        yield threads
    finally:
        setter(before)


@clause("parallel_apply.state.thread-locals")
@pytest.mark.parametrize("concurrent", [False, True], ids="concurrent={}".format)
@given(counts=CALLS)
def test_a_module_sees_no_thread_locals_of_other_modules(target, topology, concurrent, counts):
    local = threading.local()
    for count in counts:
        module = ThreadLocalBuffer(local, barrier=barrier(count, concurrent))
        checks.same(run(target, topology, [module] * count), [None] * count)


@clause("parallel_apply.state.thread-locals")
@given(count=SEVERAL)
def test_only_a_single_module_shares_the_callers_thread_locals(target, topology, count):
    local = threading.local()
    local.buffer = buffer = torch.ones(2)
    checks.same(run(target, topology, [ThreadLocalBuffer(local)] * count), [None] * count)
    assert local.buffer is buffer
    assert run(target, topology, [ThreadLocalBuffer(local)])[0] is buffer
    assert local.buffer is not buffer


@clause("parallel_apply.state.thread-locals")
@example(outer=2, inner=2, fails=False)
@given(outer=SEVERAL, inner=SEVERAL, fails=st.booleans())
def test_nested_calls_keep_thread_locals_separate(target, topology, outer, inner, fails):
    local, unchanged = threading.local(), []

    def call():
        before = local.buffer
        with suppress(ValueError):
            checks.same(
                run(target, topology, [ThreadLocalBuffer(local, fails=fails)] * inner),
                [None] * inner,
            )
        unchanged.append(local.buffer is before)

    checks.same(
        run(target, topology, [ThreadLocalBuffer(local, inner=call)] * outer), [None] * outer
    )
    checks.same(unchanged, [True] * outer)


@clause("parallel_apply.leftovers.thread-locals")
@pytest.mark.parametrize("concurrent", [False, True], ids="concurrent={}".format)
@given(count=SEVERAL, fails=st.booleans())
def test_thread_locals_of_modules_are_freed_after_the_call(
    target, topology, concurrent, count, fails
):
    local, references = threading.local(), []
    with disable_gc():
        modules = [
            ThreadLocalBuffer(local, references, barrier(count, concurrent), fails=fails)
        ] * count
        with suppress(ValueError):
            run(target, topology, modules)
        assert len(references) == count
        check_freed(references)


@clause("parallel_apply.state.thread-hooks")
@pytest.mark.parametrize("kind", HOOKS)
@given(count=SEVERAL)
def test_hooks_for_new_threads_reach_every_module_until_removed(target, topology, kind, count):
    modules = [Lambda(traced)] * count
    run(target, topology, modules)
    with record_threads(*HOOKS[kind][:2]) as threads:
        run(target, topology, modules)
    run(target, topology, modules)
    checks.same({"calls of the hook": len(threads)}, {"calls of the hook": count})


@clause("parallel_apply.state.thread-hooks")
@pytest.mark.parametrize("kind", HOOKS)
@given(count=SEVERAL)
def test_hooks_of_the_callers_thread_do_not_reach_modules(target, topology, kind, count):
    with record_threads(*HOOKS[kind][2:]) as threads:
        run(target, topology, [Lambda(traced)] * count)
        checks.same({"calls of the hook": len(threads)}, {"calls of the hook": 0})
        run(target, topology, [Lambda(traced)])
        checks.same(threads, [threading.get_ident()])


@clause("parallel_apply.state.event-loop")
@given(count=SEVERAL)
def test_only_a_single_module_runs_in_the_callers_event_loop(target, topology, count):
    async def call():
        (loop,) = run(target, topology, [Lambda(asyncio.get_running_loop)])
        assert loop is asyncio.get_running_loop()
        return run(target, topology, [Lambda(lambda: asyncio.run(fetch()))] * count)

    checks.same(asyncio.run(call()), ["fetched"] * count)
