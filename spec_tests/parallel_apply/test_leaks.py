"""parallel_apply: lifetimes of objects and threads."""

import threading
import weakref
from contextlib import suppress

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from spec_tests.harness.concurrency.leaks import (
    disable_gc,
    find_alive,
    silence_thread_errors,
    wait_for_thread_count,
)
from spec_tests.harness.conformance.clauses import clause
from spec_tests.parallel_apply.run_modules import run
from spec_tests.strategies.exceptions import ANY_EXCEPTIONS, BASE_EXCEPTIONS
from spec_tests.strategies.failing_modules import error_and_modules, failing_calls
from spec_tests.strategies.parallel_apply import ordinals
from spec_tests.strategies.probe_modules import Double

#: Numbers of modules in a call.
COUNTS = st.integers(1, 4)


class NoOp(nn.Module):
    """A module that does nothing."""

    def forward(self):
        pass


class Failing(nn.Module):
    """A module that records a weak reference to a new tensor, then raises an error."""

    def __init__(self, references):
        super().__init__()
        self.references = references

    def forward(self, x):
        doubled = x * 2
        self.references.append(weakref.ref(doubled))
        raise ValueError("failure")


def apply(target, topology, modules):
    devices = topology.take(len(modules))
    inputs = [torch.ones(2, device=device) for device in devices]
    device_ids = ordinals(topology, range(len(modules)))
    results = target.parallel_apply.parallel_apply(modules, inputs, devices=device_ids)
    return [weakref.ref(each) for each in (*modules, *inputs, *results)]


def references_after_failure(target, topology, count):
    references = []
    with suppress(ValueError):
        apply(target, topology, [Failing(references) for _ in range(count)])
    return references


@clause("parallel_apply.leftovers.objects")
@given(count=COUNTS)
def test_a_call_keeps_no_module_input_or_result_alive(target, topology, count):
    with disable_gc():
        references = apply(target, topology, [Double() for _ in range(count)])
        assert not find_alive(references)


@clause("parallel_apply.leftovers.tensors-of-a-failure")
@given(count=COUNTS)
def test_a_handled_failure_keeps_no_tensor_of_a_module_alive(target, topology, count):
    with disable_gc():
        references = references_after_failure(target, topology, count)
        assert len(references) == count
        assert not find_alive(references)


@clause("parallel_apply.leftovers.threads")
@given(counts=st.lists(COUNTS, min_size=1, max_size=8))
def test_calls_do_not_accumulate_threads(target, topology, counts):
    run(target, topology, [NoOp()] * max(counts))
    before = threading.active_count()
    for count in counts:
        run(target, topology, [NoOp()] * count)
    assert wait_for_thread_count(before)


@clause("parallel_apply.leftovers.threads")
@given(call=failing_calls(ANY_EXCEPTIONS | BASE_EXCEPTIONS))
def test_failing_calls_do_not_accumulate_threads(target, topology, call):
    run(target, topology, [NoOp()] * 4)
    before = threading.active_count()
    with silence_thread_errors():
        error_and_modules(call, target, topology)
    assert wait_for_thread_count(before)
