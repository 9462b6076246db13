"""Parameters that change in place under no_grad. The reference raises an error: FN-2."""

from functools import partial

import pytest
import torch
from torch import nn

from spec_tests.functions.rescaled import (
    KINDS,
    OPTIMIZED,
    EmbeddingAmongLayers,
    Product,
    gradient_penalty,
    make_evaluating_rescaler,
    run_after_optimizer_step,
    run_halving_each_parameter,
    run_parallel_and_separate,
)
from spec_tests.harness.compare import checks
from spec_tests.harness.conformance.clauses import clause
from spec_tests.strategies.computed_modules import computed

#: Slots of the devices. Device 1 is the first and the third device.
SLOTS = (1, 0, 1, 2)


# The module with a sparse buffer has no parameter, and large parameters take seconds.
@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if kind not in ("sparse_buffer", "large")]
)
@clause("divergences.FN-2.every-parameter")
def test_forward_may_change_any_parameter_in_place(target, topology, kind):
    computed([kind])
    for found, expected in run_halving_each_parameter(target, topology, kind, SLOTS):
        checks.same(found, expected, kind, tolerance=checks.LAYER)


@clause("divergences.FN-2.every-parameter")
def test_a_module_may_rescale_its_layers_in_evaluation(target, topology):
    found, expected = run_parallel_and_separate(target, topology, make_evaluating_rescaler, SLOTS)
    checks.same(found, expected, tolerance=checks.LAYER)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("index", range(3))
@clause("divergences.FN-2.embeddings")
def test_an_embedding_at_any_position_renormalises_its_rows(target, topology, index, sparse):
    make = partial(EmbeddingAmongLayers, index, sparse=sparse)
    found, expected = run_parallel_and_separate(target, topology, make, SLOTS)
    checks.same(found, expected, index, tolerance=checks.LAYER)


@pytest.mark.parametrize("kind", OPTIMIZED)
@clause("divergences.FN-2.steps-in-between")
def test_replica_zero_uses_the_parameters_after_an_optimizer_step(target, topology, kind):
    computed([kind])
    found, expected = run_after_optimizer_step(target, topology, kind, SLOTS)
    checks.same(found, expected, kind, tolerance=checks.LAYER)


@clause("divergences.FN-2.second-derivatives")
def test_a_gradient_penalty_on_changed_parameters_is_differentiable(target, topology):
    found, expected = run_parallel_and_separate(
        target, topology, make_evaluating_rescaler, SLOTS, function=gradient_penalty
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
    module = Product().to(topology.device(0))
    parallel = target.data_parallel.DataParallel(module, topology.take(3))
    errors = [_changed_after_use(model, module, index) for model in (module, parallel)]
    assert ["has been modified by an inplace operation" in error for error in errors] == [True] * 2


class HalvingWeight(nn.Module):
    """A module that halves its weight in place, then multiplies its input by the weight."""

    def __init__(self, device):
        super().__init__()
        self.weight = nn.Parameter(torch.full((2,), 4.0, device=device))

    def forward(self, rows):
        with torch.no_grad():
            self.weight.mul_(0.5)
        return rows * self.weight


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


@clause("divergences.FN-2.in-place-under-no-grad")
def test_a_parameter_changed_in_place_under_no_grad_keeps_its_gradient(target, topology):
    module = HalvingWeight(topology.device(0))
    rows = torch.ones((4, 2), device=topology.device(0))
    outputs = target.data_parallel.DataParallel(module, topology.take(2))(rows)
    outputs.sum().backward()
    assert outputs.unique().tolist() == [2.0]
    assert (module.weight.tolist(), module.weight.grad.tolist()) == ([2.0] * 2, [4.0] * 2)
