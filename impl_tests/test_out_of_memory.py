"""Calls on devices that refuse an allocation: the state afterwards, and the next call."""

import itertools

import pytest
import torch

from impl_tests.helpers.cases import CASES, RepeatedCall
from spec_tests.machine import process_state
from spec_tests.simulator import native

NAMES = [name for name, case in CASES.items() if case.is_repeated]


def refused_allocations(call, ordinal):
    """Call with no allocation, then with one more each time, until none is refused."""
    for allocations in itertools.count():
        native.extension().set_fault("no-memory", ordinal, allocations)
        try:
            call()
            return
        except torch.OutOfMemoryError:
            yield allocations
        finally:
            native.extension().set_fault("", -1)


@pytest.mark.parametrize("ordinal", [0, 1])
@pytest.mark.parametrize("name", NAMES)
def test_a_refused_allocation_leaves_no_state_and_the_next_call_works(topology, name, ordinal):
    call = RepeatedCall(name)
    before, expected = process_state.read(topology), call.compute()
    for allocations in refused_allocations(call.compute, ordinal):
        changes = process_state.changes(before, process_state.read(topology))
        assert not changes, f"after {allocations} allocations"
    torch.testing.assert_close(call.compute(), expected)
