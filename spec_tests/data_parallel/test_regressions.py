"""Past defects of DataParallel, with version, symptom and cause."""

import weakref

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from spec_tests.data_parallel import gradient_penalty
from spec_tests.harness.compare import checks
from spec_tests.harness.concurrency.leaks import disable_gc, find_alive
from spec_tests.harness.conformance.clauses import clause
from spec_tests.harness.environment import capabilities
from spec_tests.strategies.supported_layers import computed


class BackwardRecorder(nn.Module):
    """A module whose backward records the gradient's device and the current device."""

    def __init__(self, recorded):
        super().__init__()
        self.recorded = recorded

    def forward(self, x):
        x = x * 1
        x.register_hook(self.record)
        return x

    def record(self, gradient):
        current = torch.accelerator.current_device_index()
        self.recorded.append((gradient.device.index, current))


def forward_and_backward(target, topology):
    devices = topology.take(3)
    module = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).to(devices[0])
    wrapped = target.data_parallel.DataParallel(module, devices)
    x = torch.arange(12.0).to(devices[0]).reshape(6, 2).requires_grad_()
    output = wrapped(x)
    output.square().sum().backward()
    tensors = [*module.parameters(), *module.buffers(), x, output]
    return [weakref.ref(item) for item in (wrapped, module, *tensors)]


@clause("data_parallel.leftovers")
def test_a_call_leaves_no_references_to_its_tensors(target, topology):
    """PyTorch 0.3 (#4865): recursive closures were reference cycles that kept the batch."""
    with disable_gc():
        references = forward_and_backward(target, topology)
        assert not find_alive(references)


@clause("data_parallel.backward-device")
@given(count=st.integers(1, 4))
def test_the_device_of_forward_is_current_in_backward(target, topology, count):
    """PyTorch 0.1 (#2017): the current device was always 0 in backward."""
    recorded = []
    devices = topology.take(count)
    wrapped = target.data_parallel.DataParallel(BackwardRecorder(recorded), devices)
    x = torch.ones(12, device=devices[0], requires_grad=True)
    wrapped(x).sum().backward()
    assert {current for _, current in recorded} == {device.index for device in devices}
    assert all(expected == current for expected, current in recorded)


@clause("data_parallel.gradient-penalty")
@pytest.mark.parametrize("penalty", gradient_penalty.PENALTIES, ids=lambda each: each.__name__)
def test_a_gradient_penalty_reaches_the_weights_of_a_convolution(topology, wrap, penalty):
    """PyTorch 0.2 (#2736): the penalty failed with Conv2d. PyTorch 1.0 (#16532): in a helper."""
    capabilities.require("float64")
    computed(["convolution"])
    device = topology.device(0)
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Tanh(), nn.Flatten()).double().to(device)
    x = torch.linspace(-1, 1, 64).double().reshape(4, 1, 4, 4).to(device).requires_grad_()
    wrapped = wrap(module, 3)
    found = gradient_penalty.gradients(penalty, wrapped, module, x)
    expected = gradient_penalty.gradients(penalty, module, module, x)
    checks.same(found, expected, tolerance=checks.LAYER)
