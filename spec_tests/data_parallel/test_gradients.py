"""data_parallel and DataParallel: first and second derivatives, and gradients of parameters."""

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn
from torch.autograd import forward_ad

from spec_tests import checks
from spec_tests.checks.numerical_gradients import (
    call_with_tensors,
    check_gradients,
    check_second_gradients,
)
from spec_tests.checks.snapshot import snapshot
from spec_tests.machine import capabilities
from spec_tests.machine.clauses import cases, clause
from spec_tests.strategies.calls import DeviceAt, build, device_lists
from spec_tests.strategies.layers import seeded
from spec_tests.strategies.small_modules import Calls
from spec_tests.strategies.supported_layers import computed
from spec_tests.strategies.tensors import device_slots


def network(device):
    """Return a small float64 network whose second derivatives are not zero.

    The test is not-run if the devices do not compute in float64.
    """
    capabilities.require("float64")
    net = seeded(lambda: nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)).double())
    return net.to(device)


def leaves(module, topology, rows):
    x = torch.linspace(-1, 1, rows * 2, device="cpu").reshape(rows, 2).double()
    return (x.to(topology.device(0)).requires_grad_(), *module.parameters())


@cases(
    "check",
    {
        "data_parallel.gradcheck": [check_gradients],
        "data_parallel.gradgradcheck": [check_second_gradients],
    },
)
@pytest.mark.parametrize(("slots", "entry_point"), [(1, "function"), (3, "class")])
def test_derivatives_equal_numerical_ones(topology, wrap, check, entry_point, slots):
    module = network(topology.device(0))
    parallel = wrap(module, slots, entry_point)
    names = [name for name, _ in module.named_parameters()]

    def function(x, *parameters):
        replacements = dict(zip(names, parameters, strict=True))
        return call_with_tensors(lambda: parallel(x), module, replacements)

    check(function, leaves(module, topology, 4))


def inline_penalty(model, x):
    """Return the sum of the squared gradients of the output with respect to ``x``.

    The result also contains the output times 0, so that the graph of the output stays alive.
    """
    output = model(x)
    (gradient,) = torch.autograd.grad(output.sum(), x, create_graph=True)
    return gradient.square().sum() + 0 * output.sum()


def helper_penalty(model, x):
    """Like `inline_penalty`, but without the output, which is freed before the next backward."""
    return input_gradient(model, x).square().sum()


def input_gradient(model, x):
    (gradient,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    return gradient


def penalty_and_loss(model, x):
    """Return a loss plus a penalty from another call, as in adversarial training."""
    return model(x).sum() + helper_penalty(model, x)


def check_penalty(penalty, wrapped, module, x, **options):
    """Compare the penalty and its gradients for ``x`` and the parameters with those of the module.

    If the penalty does not depend on a parameter, the gradient is zero here, not None. Divergence
    FN-1 tests the difference between zero and None.
    """
    results = []
    for model in (wrapped, module):
        loss, leaves = penalty(model, x), (x, *module.parameters())
        found = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
        results.append(snapshot([loss, *found], {}, strides=False))
    checks.same(*results, tolerance=checks.LAYER, **options)


EVERY_PENALTY = pytest.mark.parametrize(
    "penalty",
    [inline_penalty, helper_penalty, penalty_and_loss],
    ids=lambda penalty: penalty.__name__,
)


@clause("data_parallel.gradient-penalty")
@EVERY_PENALTY
@given(
    rows=st.integers(1, 6),
    slots=st.integers(1, 4),
    entry_point=st.sampled_from(["function", "class"]),
)
def test_a_gradient_penalty_has_the_gradients_of_the_unwrapped_module(
    topology, wrap, entry_point, penalty, rows, slots
):
    module = network(topology.device(0))
    x = leaves(module, topology, rows)[0]
    check_penalty(penalty, wrap(module, slots, entry_point), module, x, place="gradient")


@clause("data_parallel.gradient-penalty")
@EVERY_PENALTY
def test_a_gradient_penalty_reaches_the_weights_of_a_convolution(topology, wrap, penalty):
    """PyTorch 0.2 (#2736): the penalty failed with Conv2d. PyTorch 1.0 (#16532): in a helper."""
    capabilities.require("float64")
    computed(["convolution"])
    device = topology.device(0)
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Tanh(), nn.Flatten()).double().to(device)
    x = torch.linspace(-1, 1, 64).double().reshape(4, 1, 4, 4).to(device).requires_grad_()
    check_penalty(penalty, wrap(module, 3), module, x, place="gradient")


@clause("divergences.DP-1.cpu-devices")
@pytest.mark.parametrize("entry_point", ["function", "class"])
def test_replicas_on_the_cpu_support_double_backward(wrap, entry_point):
    module = network("cpu")
    x = torch.linspace(-1, 1, 8, dtype=torch.float64).reshape(4, 2).requires_grad_()
    check_penalty(inline_penalty, wrap(module, (None, None), entry_point), module, x)


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


@clause("data_parallel.frozen")
@given(slots=st.integers(1, 4))
def test_frozen_parameters_get_no_gradient(topology, wrap, slots):
    module = network(topology.device(0))
    module[0].weight.requires_grad_(False)
    x = leaves(module, topology, 4)[0]
    wrap(module, slots, "class")(x).sum().backward()
    assert module[0].weight.grad is None
    assert module[0].bias.grad is not None


@clause("data_parallel.accumulates")
@pytest.mark.parametrize("size", [2, 2**18], ids=["small", "1 MiB"])
@pytest.mark.parametrize("slots", [(0, 1, 2), (0, 0, 0)], ids="slots={}".format)
def test_gradients_of_several_calls_add_up(topology, wrap, slots, size):
    # Autograd passes one gradient object to both parameters.
    first, second = (nn.Parameter(torch.zeros(size)) for _ in range(2))
    module = Calls(
        lambda self, x: (self.first + self.second) * x.sum(), first=first, second=second
    )
    module.to(topology.device(0))
    wrapped = wrap(module, slots)
    for rows in (1, 4, 2):
        wrapped(torch.ones(rows, device=topology.device(0))).sum().backward()
    found = torch.stack([parameter.grad for parameter in module.parameters()])
    checks.same(found, torch.full((2, size), 7.0))


# PyTorch scripts the decompositions of forward-mode AD when it first needs them.
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
@clause("data_parallel.forward-mode-ad")
@pytest.mark.parametrize("entry_point", ["function", "class"])
@given(slots=device_slots(min_size=2), rows=st.integers(1, 8), has_parameters=st.booleans())
def test_an_input_with_a_tangent_is_refused(
    topology, wrap, entry_point, slots, rows, has_parameters
):
    x = torch.ones(rows, 2, device=topology.device(slots[0]))
    module = nn.Linear(2, 1).to(x.device) if has_parameters else nn.Identity()
    forward = wrap(module, slots, entry_point)
    with forward_ad.dual_level(), pytest.raises(NotImplementedError, match=r"forward.mode AD"):
        forward(forward_ad.make_dual(x, torch.ones_like(x)))


def embed(module, indices):
    """Return embeddings whose gradient is sparse if the first index of a chunk is even."""
    is_even = indices[0].item() % 2 == 0
    return nn.functional.embedding(indices, module.weight, sparse=is_even)


@clause("data_parallel.sparse-gradients")
@given(
    devices=device_lists(min_size=2), indices=st.lists(st.integers(0, 4), min_size=2, max_size=8)
)
@example(devices=[DeviceAt(0), DeviceAt(1)], indices=[2, 1, 0, 1])
@example(devices=[DeviceAt(0), DeviceAt(1)], indices=[2, 1, 1, 0])
def test_sparse_gradients_are_summed(target, topology, devices, indices):
    embedding = Calls(embed, weight=nn.Parameter(torch.ones(5, 2)))
    embedding.to(topology.device(devices[0].slot))
    wrapped = target.data_parallel.DataParallel(embedding, build(devices, topology))
    wrapped(torch.tensor(indices)).sum().backward()
    chunks = torch.tensor(indices).chunk(len(devices))
    assert embedding.weight.grad.is_sparse == all(chunk[0] % 2 == 0 for chunk in chunks)
    counts = torch.bincount(torch.tensor(indices), minlength=5).float()
    checks.same(embedding.weight.grad.to_dense(), counts[:, None].expand(5, 2))


@clause("divergences.DP-3.sparse-gradients-of-one-replica")
@pytest.mark.parametrize("entry_point", ["function", "class"])
def test_a_sparse_gradient_of_one_replica_reaches_the_parameter(topology, wrap, entry_point):
    embedding = nn.Embedding(3, 2, sparse=True).to(topology.device(0))
    x = torch.tensor([[1, 2, 1]], device=topology.device(0))
    wrap(embedding, 2, entry_point)(x).sum().backward()
    assert embedding.weight.grad.is_sparse
    checks.same(embedding.weight.grad.to_dense(), torch.tensor([[0.0, 0], [2, 2], [1, 1]]))
