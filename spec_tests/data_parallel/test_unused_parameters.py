"""Parameters that no replica uses. The reference gives them zero gradients: FN-1."""

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn

from spec_tests import checks
from spec_tests.machine.clauses import clause
from spec_tests.strategies.tensors import counting

#: The replicas that use a layer: all, none, or only the second replica.
USES = ("all", "none", "second")
#: Draws for two or three layers the replicas that use it, and whether its weight is frozen.
LAYERS = st.lists(st.tuples(st.sampled_from(USES), st.booleans()), min_size=2, max_size=3)
#: A layer that both replicas use, and a layer that no replica uses.
UNUSED = [("all", False), ("none", False)]


class PartlyUsedLayers(nn.Module):
    """A module that returns ``(x + layer(x) + ...).square()`` for the layers that are used.

    Weights and inputs are small whole numbers, so that all sums are exact. If it is ``tied``, the
    first layer and its weight are registered twice.
    """

    def __init__(self, uses, tied):
        super().__init__()
        self.uses = [use for use, _ in uses]
        self.layers = nn.ModuleList(nn.Linear(2, 2, bias=False) for _ in uses)
        for index, (layer, (_, frozen)) in enumerate(zip(self.layers, uses, strict=True)):
            nn.init.constant_(layer.weight, index + 1.0).requires_grad_(not frozen)
        if tied:
            self.layers.append(self.layers[0])
            self.register_parameter("tied", self.layers[0].weight)

    def forward(self, rows):
        total = rows
        for use, layer in zip(self.uses, self.layers, strict=False):
            if use == "all" or (use == "second" and bool(rows.flatten()[0] > 0)):
                total = total + layer(rows)
        return total.square()


def list_gradients(module):
    """Return the gradient of each parameter as a list, or None."""
    return {
        name: None if parameter.grad is None else parameter.grad.tolist()
        for name, parameter in module.named_parameters(remove_duplicate=False)
    }


def backward_of_sum(model, x):
    torch.autograd.backward(model(x).sum())


def backward_of_penalty(model, x):
    """Run backward from the sum of squares of the gradient of ``x``."""
    (gradient,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    torch.autograd.backward(gradient.square().sum())


def four_rows(topology):
    """Return rows for two replicas. Only the second chunk begins with a positive number."""
    return counting((4, 2), torch.float32, topology.device(0)).requires_grad_()


@pytest.mark.parametrize("differentiate", [backward_of_sum, backward_of_penalty])
@clause("divergences.FN-1.unused-stay-without-gradient")
@example(uses=UNUSED, tied=False)
@example(uses=UNUSED[::-1], tied=True)
@given(uses=LAYERS, tied=st.booleans())
def test_gradients_of_partly_used_layers_equal_those_without_replicas(
    target, topology, uses, tied, differentiate
):
    parallel, plain = (PartlyUsedLayers(uses, tied).to(topology.device(0)) for _ in range(2))
    model = target.data_parallel.DataParallel(parallel, topology.take(2))
    differentiate(model, four_rows(topology))
    differentiate(lambda x: torch.cat([*map(plain, x.chunk(2))]), four_rows(topology))
    checks.same(list_gradients(parallel), list_gradients(plain), (uses, tied))


@clause("divergences.FN-1.unused-stay-without-gradient")
def test_hooks_of_an_unused_parameter_are_not_called(target, topology):
    called, module = [], PartlyUsedLayers(UNUSED, tied=False).to(topology.device(0))
    for index, layer in enumerate(module.layers):
        layer.weight.register_hook(lambda _, index=index: called.append(index))
        layer.weight.register_post_accumulate_grad_hook(
            lambda _, index=index: called.append(index)
        )
    backward_of_sum(
        target.data_parallel.DataParallel(module, topology.take(2)), four_rows(topology)
    )
    checks.same(called, [0, 0])


@clause("divergences.FN-1.unused-stay-without-gradient")
@pytest.mark.parametrize("create_graph", [False, True], ids=["once", "twice"])
def test_autograd_grad_returns_none_for_an_unused_parameter(target, topology, create_graph):
    module = PartlyUsedLayers(UNUSED, tied=False).to(topology.device(0))
    outputs = target.data_parallel.DataParallel(module, topology.take(2))(four_rows(topology))
    found = torch.autograd.grad(
        outputs.sum(), [*module.parameters()], create_graph=create_graph, allow_unused=True
    )
    assert [gradient is None for gradient in found] == [False, True], (
        "autograd.grad must return None for the unused parameter of DataParallel, and no other"
    )
