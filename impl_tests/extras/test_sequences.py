"""Outputs of kept replicas are those of the changed module, or the block ends in an error."""

import pytest
import torch
from hypothesis import example, given
from torch import nn

import impl
from impl_tests.extras.sequences import (
    CHANGES,
    INFERENCE,
    MODES,
    has_hidden_change,
    run,
    sequences,
)


@pytest.mark.parametrize("mode", MODES)
@given(sequence=sequences())
@example(sequence=["data of buffers", None, "buffers"])  # The second change hid the first.
@example(sequence=["writes", None, "writes", None])  # Replace a buffer, then change another one.
@example(sequence=[INFERENCE, "writes", "writes", "writes", None])  # Then compute gradients.
@example(sequence=["replace child", "train", "adapt", None])  # No version increases.
def test_outputs_are_those_of_the_module_or_an_error_is_raised(mode, sequence):
    assert not run(sequence, mode) or has_hidden_change(sequence)


@pytest.mark.parametrize("change", CHANGES)
def test_outputs_after_one_change_are_those_of_the_module_or_an_error_is_raised(change):
    for mode in MODES:
        assert not run([change, None], mode) or has_hidden_change([change]), mode


def test_a_hidden_change_of_no_sampled_element_is_not_seen():
    module = nn.Linear(8, 8).requires_grad_(False)
    net = impl.DataParallel(module, ["cpu"] * 2, cache_frozen_parameters=True)
    x = torch.ones(2, 8)
    before = net(x)
    module.weight.data[0, 5] += 1  # A sample of 64 elements has each fourth one.
    assert torch.equal(net(x)[1], before[1])  # The row of the second replica is old.
    assert not torch.equal(module(x)[1], before[1])
    module.weight.data[0, 0] += 1
    torch.testing.assert_close(net(x), module(x))
