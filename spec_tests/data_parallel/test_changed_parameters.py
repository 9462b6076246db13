"""Parameters that change in place under no_grad. The reference raises an error: FN-2.

The expected result comes from separate modules without replicas, one for each chunk.
"""

from functools import partial, reduce

import pytest
import torch
from torch import nn

from spec_tests import checks
from spec_tests.checks.outcome import cotangent
from spec_tests.checks.snapshot import snapshot
from spec_tests.machine.clauses import clause
from spec_tests.strategies.layers import WIDTH, seeded
from spec_tests.strategies.module_kinds import MODULE_KINDS
from spec_tests.strategies.small_modules import Calls
from spec_tests.strategies.supported_layers import computed
from spec_tests.strategies.tensors import TensorSpec

#: Slots of the devices. Device 1 is the first and the third device.
SLOTS = (1, 0, 1, 2)
#: Modules without parameters and buffers that require a gradient, and 'tagged', which computes a
#: different result in a replica.
_LEFT_OUT = {*("tanh", "shared_buffer", "counter", "assorted", "empty", "sparse_buffer", "tagged")}
TRAINABLE_KINDS = [kind for kind in MODULE_KINDS if kind not in _LEFT_OUT]


class EmbeddingAmongLayers(nn.Module):
    """A module with two linear layers. Layer number ``index`` is an embedding with max_norm."""

    def __init__(self, index, *, sparse):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(2)])
        self.index = index
        self.layers.insert(index, nn.Embedding(8, WIDTH, max_norm=0.5, sparse=sparse))

    def forward(self, x):
        embedding = self.layers[self.index]
        found = embedding(x.detach().abs().long() % 8).sum(1)
        for layer in self.layers:
            if layer is not embedding:
                found = layer(found).tanh()
        return found


class Rescaler(nn.Module):
    """Three linear layers. In evaluation mode, forward divides weight i by 2**i in place."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(3)])

    def forward(self, x):
        for depth, layer in enumerate(self.layers):
            if not self.training:
                with torch.no_grad():
                    layer.weight.div_(2**depth)
            x = layer(x).tanh()
        return x


def evaluating_rescaler():
    return Rescaler().eval()


def gradient_penalty(model, x):
    """Return the square of the gradient with respect to ``x``. The result is differentiable."""
    x = x.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    return gradient.square()


def get_tensor(module, name):
    return reduce(getattr, name.split("."), module)


def differentiable(module):
    """Return the names of the parameters and of the buffers that require a gradient."""
    buffers = [name for name, buffer in module.named_buffers() if buffer.requires_grad]
    return [*dict(module.named_parameters()), *buffers]


def sequence(kind, *, halved=None):
    """Return a module of a kind. A hook halves its tensor ``halved`` before forward."""

    def halve(module, _):
        with torch.no_grad():
            get_tensor(module, halved).mul_(0.5)

    # The hook is on a parent, because replicas of some modules lose the hooks of the module.
    module = nn.Sequential(MODULE_KINDS[kind]())
    if halved is not None:
        module.register_forward_pre_hook(halve)
    return module


def results(output, modules):
    """Return the output, gradients summed over ``modules``, and the first module's tensors."""
    names = differentiable(modules[0])
    leaves = [get_tensor(module, name) for module in modules for name in names]
    gradients = torch.autograd.grad(output, leaves, cotangent(output), allow_unused=True)
    tensors = [output, *leaves[: len(names)]]
    for index in range(len(names)):
        dense = [each.to_dense() for each in gradients[index :: len(names)] if each is not None]
        tensors.append(sum(dense) if dense else None)
    values = [tensor if tensor is None else tensor.detach().cpu() for tensor in tensors]
    return snapshot(values, {}, strides=False)


def parallel_and_separate(target, topology, make, function=nn.Module.__call__):
    """Return the results of DataParallel, and of separate modules that get one chunk each.

    ``function`` computes the output of a model for its rows.
    """
    devices = topology.take(SLOTS)
    parallel, *separate = [seeded(make).to(devices[0]) for _ in range(1 + len(SLOTS))]
    rows = TensorSpec((2 * len(SLOTS), WIDTH), slot=SLOTS[0]).build(topology)
    found = function(target.data_parallel.DataParallel(parallel, devices), rows)
    expected = torch.cat(list(map(function, separate, rows.chunk(len(SLOTS)))))
    return results(found, [parallel]), results(expected, separate)


# Large parameters take seconds. In a replica, parameters at one address have memory of their own.
# Replica 0 of "branching" does not use its parameter here.
@pytest.mark.parametrize(
    "kind", [kind for kind in TRAINABLE_KINDS if kind not in ("large", "one_address", "branching")]
)
@clause("divergences.FN-2.every-parameter")
def test_forward_may_change_any_parameter_in_place(target, topology, kind):
    computed([kind])
    for name in differentiable(seeded(sequence, kind)):
        make = partial(sequence, kind, halved=name)
        found, expected = parallel_and_separate(target, topology, make)
        checks.same(found, expected, (kind, name), tolerance=checks.LAYER)


@clause("divergences.FN-2.every-parameter")
def test_a_module_may_rescale_its_layers_in_evaluation(target, topology):
    found, expected = parallel_and_separate(target, topology, evaluating_rescaler)
    checks.same(found, expected, tolerance=checks.LAYER)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("index", range(3))
@clause("divergences.FN-2.embeddings")
def test_an_embedding_at_any_position_renormalises_its_rows(target, topology, index, sparse):
    make = partial(EmbeddingAmongLayers, index, sparse=sparse)
    found, expected = parallel_and_separate(target, topology, make)
    checks.same(found, expected, index, tolerance=checks.LAYER)


# With the rows of this test no replica of "branching" uses its parameter.
@pytest.mark.parametrize(
    "kind", [kind for kind in TRAINABLE_KINDS if kind not in ("grad_buffer", "branching")]
)
@clause("divergences.FN-2.steps-in-between")
def test_replica_zero_uses_the_parameters_after_an_optimizer_step(target, topology, kind):
    # Replica 0 shares the parameters of the module, on which the step runs. The other replicas
    # keep copies of the old parameters. So the step also runs on the first separate module only.
    computed([kind])
    devices, make = topology.take(SLOTS), partial(sequence, kind)
    parallel, *separate = [seeded(make).to(devices[0]) for _ in range(1 + len(SLOTS))]
    replicas = target.replicate.replicate(parallel, devices)
    for module in (parallel, separate[0]):
        for parameter in module.parameters():
            parameter.grad = torch.ones_like(parameter)
        torch.optim.SGD(module.parameters(), lr=0.25).step()
    rows = TensorSpec((2, WIDTH), slot=SLOTS[0]).build(topology)
    pairs = zip(replicas, devices, strict=True)
    found = torch.cat([replica(rows.to(device)).to(devices[0]) for replica, device in pairs])
    expected = torch.cat([module(rows) for module in separate])
    found, expected = results(found, [parallel]), results(expected, separate)
    checks.same(found, expected, kind, tolerance=checks.LAYER)


@clause("divergences.FN-2.second-derivatives")
def test_a_gradient_penalty_on_changed_parameters_is_differentiable(target, topology):
    found, expected = parallel_and_separate(
        target, topology, evaluating_rescaler, gradient_penalty
    )
    checks.same(found, expected, tolerance=checks.LAYER)


def _changed_after_use(model, module, index):
    x = torch.ones(8, 4, device=module.factors[0].device, requires_grad=True)
    result = model(x)
    with torch.no_grad():
        module.factors[index].mul_(0.5)
    with pytest.raises(RuntimeError) as caught:
        result.sum().backward()
    return str(caught.value)


@pytest.mark.parametrize("index", range(3))
@clause("divergences.FN-2.changed-after-use")
def test_backward_reports_the_version_of_the_changed_parameter(target, topology, index):
    factors = nn.ParameterList([torch.ones(WIDTH) for _ in range(3)])
    module = Calls(lambda self, x: reduce(torch.mul, self.factors, x), factors=factors)
    module.to(topology.device(0))
    parallel = target.data_parallel.DataParallel(module, topology.take(3))
    errors = [_changed_after_use(model, module, index) for model in (module, parallel)]
    message = f"after factors[{index}].mul_(0.5), backward of DataParallel raises: {errors[1]}"
    assert ["has been modified by an inplace operation" in error for error in errors] == [
        True
    ] * 2, message


def _embedding(topology):
    embedding = nn.Embedding(4, 2, max_norm=1.0)
    nn.init.constant_(embedding.weight, 3.0)
    return embedding.to(topology.device(0))


@clause("divergences.FN-2.in-place-under-no-grad")
def test_rows_that_replica_zero_of_an_embedding_renormalises_are_kept(target, topology):
    parallel, plain = _embedding(topology), _embedding(topology)
    # Looking up a row renormalises it, and only the writes of replica 0 are kept. So both
    # replicas get the same tokens.
    tokens = torch.tensor([1, 2, 1, 2]).to(topology.device(0))
    outputs = target.data_parallel.DataParallel(parallel, topology.take(2))(tokens)
    outputs.sum().backward()
    plain(tokens).sum().backward()
    checks.same(outputs, plain(tokens))
    checks.same(parallel.weight, plain.weight)
    checks.same(parallel.weight.grad, plain.weight.grad)
