"""parallel_apply: lifetimes of objects and threads."""

import threading
import weakref
from contextlib import suppress

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn

from spec_tests.checks.leaks import (
    check_freed,
    disable_gc,
    silence_thread_errors,
    wait_until,
)
from spec_tests.failure import CheckError
from spec_tests.machine.clauses import clause
from spec_tests.parallel_apply.run_modules import Lambda, run
from spec_tests.strategies.exceptions import ANY_EXCEPTIONS, BASE_EXCEPTIONS, ExceptionSpec
from spec_tests.strategies.parallel_apply import error_and_module, failing_calls, ordinals
from spec_tests.strategies.small_modules import Double

#: Numbers of modules in a call.
COUNTS = st.integers(1, 4)


def apply(target, topology, modules, references):
    """Apply modules to tensors. Add references to modules, inputs and results."""
    inputs = [torch.ones(2, device=device) for device in topology.take(len(modules))]
    references += map(weakref.ref, (*modules, *inputs))
    devices = ordinals(topology, range(len(modules)))
    results = target.parallel_apply.parallel_apply(modules, inputs, devices=devices)
    references += map(weakref.ref, results)


class FailingAfterAllocation(nn.Module):
    """A module that creates a tensor, then raises an exception."""

    def __init__(self, error, references):
        super().__init__()
        self.error = error
        self.references = references

    def forward(self, x):
        doubled = x * 2
        self.references.append(weakref.ref(doubled))
        raise self.error.make("failure")


def references_after_failure(target, topology, errors):
    references = []
    # A target without parallel_apply raises here, outside the try block.
    _ = target.parallel_apply.parallel_apply
    try:
        modules = (FailingAfterAllocation(error, references) for error in errors)
        apply(target, topology, [*modules], references)
    except BaseException:
        return references
    return pytest.fail("no exception was raised")


@clause("parallel_apply.leftovers.objects")
@given(count=COUNTS)
def test_a_call_keeps_no_module_input_or_result_alive(target, topology, count):
    references = []
    with disable_gc():
        apply(target, topology, [Double() for _ in range(count)], references)
        check_freed(references)


@clause("parallel_apply.leftovers.tensors-of-a-failure")
@given(count=COUNTS)
def test_a_handled_failure_keeps_no_tensor_of_a_module_alive(target, topology, count):
    with disable_gc():
        references = references_after_failure(target, topology, [ExceptionSpec()] * count)
        tensors = references[2 * count :]
        assert len(tensors) == count
        check_freed(tensors)


@clause("divergences.PA-6.nothing-outlives-the-handler")
@example(errors=[ExceptionSpec(ValueError)])
@given(errors=st.lists(ANY_EXCEPTIONS | BASE_EXCEPTIONS, min_size=1, max_size=4))
def test_an_error_keeps_no_module_or_tensor_alive_after_its_handler(target, topology, errors):
    with disable_gc():
        references = references_after_failure(target, topology, errors)
        assert len(references) == 3 * len(errors)
        check_freed(references)


@clause("parallel_apply.leftovers.threads")
@given(counts=st.lists(COUNTS, min_size=1, max_size=8))
def test_calls_do_not_accumulate_threads(target, topology, counts):
    run(target, topology, [Lambda(int)] * max(counts))
    before = threading.active_count()
    for count in counts:
        run(target, topology, [Lambda(int)] * count)
    assert wait_until(lambda: threading.active_count() <= before)


@clause("parallel_apply.leftovers.threads")
@given(call=failing_calls(ANY_EXCEPTIONS | BASE_EXCEPTIONS))
def test_failing_calls_do_not_accumulate_threads(target, topology, call):
    run(target, topology, [Lambda(int)] * 4)
    before = threading.active_count()
    # Clauses about errors say whether one is lost.
    with silence_thread_errors(), suppress(CheckError):
        error_and_module(call, target, topology)
    assert wait_until(lambda: threading.active_count() <= before)
