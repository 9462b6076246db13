"""Parameters that no replica uses. The reference gives them zero gradients: FN-1."""

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from spec_tests.functions.backward_passes import (
    backward_of_penalty,
    backward_of_sum,
    list_gradients,
    make_chunkwise,
)
from spec_tests.harness.compare import checks
from spec_tests.harness.conformance.clauses import clause
from spec_tests.strategies.unused_parameters import LayerUse, PartlyUsedLayers, layer_uses, rows

#: A layer that both replicas use, and a layer that no replica uses.
UNUSED = (LayerUse("all"), LayerUse("none"))
DIFFERENTIATION = pytest.mark.parametrize("differentiate", [backward_of_sum, backward_of_penalty])


def _pair(topology, uses, tied):
    device = topology.device(0)
    return [PartlyUsedLayers(uses, tied=tied).to(device) for _ in range(2)]


@DIFFERENTIATION
@clause("divergences.FN-1.unused-stay-without-gradient")
@example(uses=UNUSED, tied=False)
@example(uses=UNUSED[::-1], tied=True)
@given(uses=layer_uses(), tied=st.booleans())
def test_gradients_of_partly_used_layers_equal_those_without_replicas(
    target, topology, uses, tied, differentiate
):
    parallel, plain = _pair(topology, uses, tied)
    model = target.data_parallel.DataParallel(parallel, topology.take(2))
    differentiate(model, rows(topology))
    differentiate(make_chunkwise(plain), rows(topology))
    checks.same(list_gradients(parallel), list_gradients(plain), (uses, tied))


@clause("divergences.FN-1.unused-stay-without-gradient")
@pytest.mark.parametrize("create_graph", [False, True], ids=["once", "twice"])
def test_autograd_grad_returns_none_for_an_unused_parameter(target, topology, create_graph):
    module = PartlyUsedLayers(UNUSED, tied=False).to(topology.device(0))
    outputs = target.data_parallel.DataParallel(module, topology.take(2))(rows(topology))
    parameters = list(module.parameters())
    found = torch.autograd.grad(
        outputs.sum(), parameters, create_graph=create_graph, allow_unused=True
    )
    assert [gradient is None for gradient in found] == [False, True]
