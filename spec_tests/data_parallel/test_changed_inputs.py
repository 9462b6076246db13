"""Modules that change their inputs in place, also on a device that occurs several times: DP-7."""

from contextlib import nullcontext

import pytest
import torch
from torch import nn

from spec_tests import checks
from spec_tests.checks.training_step import flatten, train_step
from spec_tests.machine.clauses import clause
from spec_tests.strategies.small_modules import Calls

#: Changes of an input in place. The second argument is a parameter of the module.
CHANGES = {
    "relu": lambda x, scale: x.relu_(),
    "subtract the mean": lambda x, scale: x.sub_(x.mean(1, keepdim=True)),
    "masked fill": lambda x, scale: x.masked_fill_(x < 0, 0.5),
    "scale by a parameter": lambda x, scale: x.mul_(scale),
    "scale in another shape": lambda x, scale: x.unsqueeze_(0).mul_(2).squeeze_(0),
}
#: Three replicas on the CPU.
CPU_DEVICES = (None,) * 3


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
    """Return the output and the gradients of a step, and the changed inputs."""
    inputs = [batch(device), batch(device) + 1, batch(device) * 2]
    step = train_step(module, inputs[0], lambda x: forward(x, more=inputs[1:]))
    return step, flatten(inputs)


def run_wrapped_and_plain(target, topology, change, slots):
    devices = topology.take(slots)
    module = ChangesInputs(change).to(devices[0])
    parallel = one_after_the_other(target)(module, devices)
    return (run(forward, module, devices[0]) for forward in (parallel, module))


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("slots", [(None,) * 3, (0, 0, 0), (0, 0)], ids="slots={}".format)
@clause("divergences.DP-7.changed-inputs-train")
def test_a_module_that_changes_its_inputs_trains(target, topology, change, slots):
    found, expected = run_wrapped_and_plain(target, topology, change, slots)
    checks.same(torch.cat(found), torch.cat(expected), change, tolerance=checks.LAYER)


@clause("divergences.DP-7.changed-inputs-train")
def test_gradients_are_right_if_some_devices_repeat(target, topology):
    # The replica on the second device changes copies of its chunks.
    (found, _), (expected, _) = run_wrapped_and_plain(target, topology, "relu", (0, 1, 0))
    checks.same(found, expected, tolerance=checks.LAYER)


@pytest.mark.parametrize("training", [True, False], ids="grad-mode={}".format)
@clause("divergences.DP-7.callers-tensor")
def test_the_callers_tensor_has_the_changes_of_cpu_replicas(wrap, training):
    module = ChangesInputs("relu")
    parallel = wrap(module, CPU_DEVICES)
    weight, x = torch.ones(3, requires_grad=True), batch("cpu")
    saved = (x * weight).sum()
    with torch.set_grad_enabled(training):
        parallel(x)
    checks.same(x, batch("cpu").relu())
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        saved.backward()


@pytest.mark.parametrize("is_view", [True, False], ids="view={}".format)
@clause("divergences.DP-7.callers-tensor")
def test_the_callers_tensor_has_the_history_of_its_changes(wrap, is_view):
    module = ChangesInputs("scale by a parameter")
    parallel = wrap(module, CPU_DEVICES)

    def gradient(forward):
        x = batch("cpu")[1:] if is_view else batch("cpu")
        output = forward(x)
        return torch.autograd.grad(output.sum() + x.square().sum(), module.scale)[0]

    checks.same(gradient(parallel), gradient(module), tolerance=checks.LAYER)


@clause("divergences.DP-7.callers-tensor")
def test_the_version_of_an_input_that_no_replica_changes_stays(wrap):
    module = nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True))
    parallel = wrap(module, CPU_DEVICES)
    weight, x = torch.ones(3, requires_grad=True), batch("cpu")
    saved = (x * weight).sum()
    parallel(x).sum().backward()
    saved.backward()
    checks.same(weight.grad, x.sum(0))


def negate(module, x):
    """Negate the input in place, and then fail if the module says so."""
    x.neg_()
    if module.fails:
        raise ValueError("negated")
    return x


@clause("data_parallel.state.changed-inputs")
@pytest.mark.parametrize("grad_mode", [True, False], ids="grad-mode={}".format)
@pytest.mark.parametrize("slots", [(0, 0), (0, 1), (0, 1, 0)], ids="slots={}".format)
@pytest.mark.parametrize("fails", [False, True], ids="fails={}".format)
def test_the_callers_tensor_has_the_changes_on_its_own_device(
    target, topology, slots, grad_mode, fails
):
    devices = topology.take(slots)
    x = torch.ones(len(slots), device=devices[0])
    saved = (x * torch.ones(1, device=devices[0], requires_grad=True)).sum()
    parallel = target.data_parallel.DataParallel(Calls(negate, fails=fails), devices)
    error = pytest.raises(ValueError, match="negated") if fails else nullcontext()
    with torch.set_grad_enabled(grad_mode), error:
        checks.same(parallel(x).tolist(), [-1.0] * len(slots))
    checks.same(x.tolist(), [-1.0 if device == devices[0] else 1.0 for device in devices])
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        saved.backward()


@clause("data_parallel.state.changed-inputs")
def test_an_input_on_another_device_keeps_its_values_and_version(wrap):
    x = torch.ones(2)
    wrapped = wrap(Calls(negate, fails=False), [0, 0])
    checks.same(wrapped(x).tolist(), [-1.0, -1.0])
    assert (x.tolist(), x._version) == ([1.0, 1.0], 0)
