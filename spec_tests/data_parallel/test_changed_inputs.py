"""Modules that change their inputs in place, on one device that occurs several times: DP-7."""

import pytest
import torch
from torch import nn

from spec_tests.harness.compare import checks
from spec_tests.harness.conformance.clauses import clause

#: Changes of an input in place. The second argument is a parameter of the module.
CHANGES = {
    "relu": lambda x, scale: x.relu_(),
    "subtract the mean": lambda x, scale: x.sub_(x.mean(1, keepdim=True)),
    "masked fill": lambda x, scale: x.masked_fill_(x < 0, 0.5),
    "scale by a parameter": lambda x, scale: x.mul_(scale),
    "scale in another shape": lambda x, scale: x.unsqueeze_(0).mul_(2).squeeze_(0),
}
CHANGE = pytest.mark.parametrize("change", CHANGES)
REPEATED_SLOTS = pytest.mark.parametrize("slots", [(0, 0), (0, 1, 0)], ids="slots={}".format)
LANES = ["cpu"] * 3


class ChangesInputs(nn.Module):
    """A module that changes the tensor ``x`` and the tensors in ``more`` in place."""

    def __init__(self, change):
        super().__init__()
        self.change, self.scale = CHANGES[change], nn.Parameter(torch.tensor([2.0, -1.0, 0.5]))
        self.linear = nn.Linear(3, 3)

    def forward(self, x, more=()):
        """Return the sum of the layer's outputs for the changed tensors."""
        for tensor in (x, *more):
            self.change(tensor, self.scale)
        return sum(self.linear(tensor * self.scale) for tensor in (x, *more))


def one_after_the_other(target):
    """Return a DataParallel that runs its replicas in the thread of the caller, in order.

    In threads the reference raises its error only if one replica changes its chunk after another
    replica has saved one.
    """

    class InOrder(target.data_parallel.DataParallel):
        def parallel_apply(self, replicas, inputs, kwargs):
            return [
                replica(*args, **options)
                for replica, args, options in zip(replicas, inputs, kwargs, strict=True)
            ]

    return InOrder


def batch(device):
    return torch.arange(-9.0, 9.0).to(device).reshape(6, 3)


def run(forward, module, device):
    """Return the output, the gradients and the changed inputs of a step, in one tensor."""
    module.zero_grad()
    inputs = [batch(device), batch(device) + 1, batch(device) * 2]
    output = forward(inputs[0], more=inputs[1:])
    output.square().sum().backward()
    grads = [parameter.grad for parameter in module.parameters()]
    return torch.cat([tensor.detach().flatten() for tensor in (output, *grads, *inputs)])


@CHANGE
@clause("divergences.DP-7.changed-inputs-train")
def test_a_module_that_changes_its_inputs_trains_on_a_repeated_device(target, topology, change):
    device = topology.device(0)
    module = ChangesInputs(change).to(device)
    parallel = one_after_the_other(target)(module, [device] * 3)
    found, expected = (run(forward, module, device) for forward in (parallel, module))
    checks.same(found, expected, change, tolerance=checks.LAYER)


@CHANGE
@clause("divergences.DP-7.changed-inputs-train")
def test_a_module_that_changes_its_inputs_trains_on_the_cpu(target, change):
    module = ChangesInputs(change)
    parallel = target.data_parallel.DataParallel(module, LANES)
    found, expected = (run(forward, module, "cpu") for forward in (parallel, module))
    checks.same(found, expected, change, tolerance=checks.LAYER)


@REPEATED_SLOTS
@clause("divergences.DP-7.changed-inputs-train")
def test_gradients_are_right_if_some_devices_repeat(target, topology, slots):
    device = topology.device(0)
    module = ChangesInputs("relu").to(device)
    parallel = one_after_the_other(target)(module, topology.take(slots))
    # Leave out the three inputs: the replica on the second device changes copies of its chunks.
    found, expected = (
        run(forward, module, device)[: -3 * batch(device).numel()]
        for forward in (parallel, module)
    )
    checks.same(found, expected, slots, tolerance=checks.LAYER)


@pytest.mark.parametrize("training", [True, False], ids="grad-mode={}".format)
@clause("divergences.DP-7.callers-tensor")
def test_the_callers_tensor_has_the_changes_of_cpu_replicas(target, training):
    module = ChangesInputs("relu")
    parallel = target.data_parallel.DataParallel(module, LANES)
    weight, x = torch.ones(3, requires_grad=True), batch("cpu")
    saved = (x * weight).sum()
    with torch.set_grad_enabled(training):
        parallel(x)
    checks.same(x, batch("cpu").relu())
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        saved.backward()


@pytest.mark.parametrize("is_view", [True, False], ids="view={}".format)
@clause("divergences.DP-7.callers-tensor")
def test_the_callers_tensor_has_the_history_of_its_changes(target, is_view):
    module = ChangesInputs("scale by a parameter")
    parallel = target.data_parallel.DataParallel(module, LANES)

    def gradient(forward):
        x = batch("cpu")[1:] if is_view else batch("cpu")
        output = forward(x)
        return torch.autograd.grad(output.sum() + x.square().sum(), module.scale)[0]

    checks.same(gradient(parallel), gradient(module), tolerance=checks.LAYER)


@clause("divergences.DP-7.callers-tensor")
def test_the_version_of_an_input_that_no_replica_changes_stays(target):
    module = nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True))
    parallel = target.data_parallel.DataParallel(module, LANES)
    weight, x = torch.ones(3, requires_grad=True), batch("cpu")
    saved = (x * weight).sum()
    parallel(x).sum().backward()
    saved.backward()
    checks.same(weight.grad, x.sum(0))
