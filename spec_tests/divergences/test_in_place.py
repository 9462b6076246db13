"""Parameters that change in place under no_grad. The reference raises an error: FN-2."""

from functools import partial

import pytest
import torch

from spec_tests.divergences.rescaled import (
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

#: Slots of the devices. In the second case, device 1 is the first and the third device.
SLOTS = pytest.mark.parametrize("slots", [(0, 1), (1, 0, 1, 2)], ids="slots={}".format)
CHANGED_VIEW_TEXT = "is a view and its base or another view of its base has been modified inplace"


@SLOTS
@pytest.mark.parametrize("kind", KINDS)
@clause("divergences.FN-2.every-parameter")
def test_forward_may_change_any_parameter_in_place(target, topology, kind, slots):
    computed([kind])
    for found, expected in run_halving_each_parameter(target, topology, kind, slots):
        checks.same(found, expected, kind, tolerance=checks.LAYER)


@SLOTS
@clause("divergences.FN-2.every-parameter")
def test_a_module_may_rescale_its_layers_in_evaluation(target, topology, slots):
    found, expected = run_parallel_and_separate(target, topology, make_evaluating_rescaler, slots)
    checks.same(found, expected, tolerance=checks.LAYER)


@SLOTS
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("index", range(3))
@clause("divergences.FN-2.embeddings")
def test_an_embedding_at_any_position_renormalises_its_rows(
    target, topology, index, sparse, slots
):
    make = partial(EmbeddingAmongLayers, index, sparse=sparse)
    found, expected = run_parallel_and_separate(target, topology, make, slots)
    checks.same(found, expected, index, tolerance=checks.LAYER)


@pytest.mark.parametrize("slots", [(0,), (0, 1), (2, 0, 1, 2)], ids="slots={}".format)
@pytest.mark.parametrize("kind", OPTIMIZED)
@clause("divergences.FN-2.steps-in-between")
def test_replica_zero_uses_the_parameters_after_an_optimizer_step(target, topology, kind, slots):
    computed([kind])
    found, expected = run_after_optimizer_step(target, topology, kind, slots)
    checks.same(found, expected, kind, tolerance=checks.LAYER)


@SLOTS
@clause("divergences.FN-2.second-derivatives")
def test_a_gradient_penalty_on_changed_parameters_is_differentiable(target, topology, slots):
    found, expected = run_parallel_and_separate(
        target, topology, make_evaluating_rescaler, slots, function=gradient_penalty
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


@pytest.mark.parametrize("slots", [2, 3, 4], ids="devices={}".format)
@pytest.mark.parametrize("index", range(3))
@clause("divergences.FN-2.changed-after-use")
def test_backward_reports_the_version_of_the_changed_parameter(target, topology, index, slots):
    module = Product().to(topology.device(0))
    parallel = target.data_parallel.DataParallel(module, topology.take(slots))
    errors = [_changed_after_use(model, module, index) for model in (module, parallel)]
    assert ["has been modified by an inplace operation" in error for error in errors] == [True] * 2


@clause("divergences.FN-2.changed-after-use")
def test_reference_reports_a_view_of_the_changed_parameter(reference, topology):
    module = Product().to(topology.device(0))
    parallel = reference.data_parallel.DataParallel(module, topology.take(2))
    assert CHANGED_VIEW_TEXT in _changed_after_use(parallel, module, 1)


@clause("divergences.FN-2.every-parameter")
def test_reference_refuses_a_module_that_rescales_its_layers(reference, topology):
    with pytest.raises(RuntimeError, match=CHANGED_VIEW_TEXT):
        run_parallel_and_separate(reference, topology, make_evaluating_rescaler, (0, 1))


@pytest.mark.parametrize("index", range(3))
@clause("divergences.FN-2.embeddings")
def test_reference_refuses_an_embedding_that_renormalises_its_rows(reference, topology, index):
    with pytest.raises(RuntimeError, match=CHANGED_VIEW_TEXT):
        run_parallel_and_separate(
            reference, topology, partial(EmbeddingAmongLayers, index, sparse=False), (0, 1)
        )


@clause("divergences.FN-2.steps-in-between")
def test_reference_refuses_replica_zero_after_an_optimizer_step(reference, topology):
    with pytest.raises(RuntimeError, match=CHANGED_VIEW_TEXT):
        run_after_optimizer_step(reference, topology, "linear", (0, 1))


@clause("divergences.FN-2.second-derivatives")
def test_reference_refuses_a_gradient_penalty_on_changed_parameters(reference, topology):
    with pytest.raises(RuntimeError, match=CHANGED_VIEW_TEXT):
        run_parallel_and_separate(
            reference, topology, make_evaluating_rescaler, (0, 1), function=gradient_penalty
        )
