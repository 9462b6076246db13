"""Models of many architectures train on impl as on one device, and as on torch.nn.parallel."""

import pytest

from impl_tests.models import steps
from impl_tests.models.catalogue import MODELS
from impl_tests.models.comparing import LOSSES, differences, unequal
from impl_tests.models.results import result_of, results, run_all

#: Published losses come from another machine, whose kernels may round otherwise, step by step.
ELSEWHERE = 1e-3


@pytest.fixture(scope="module", params=MODELS)
def model(request, topology):
    """One of the models."""
    return MODELS[request.param]


@pytest.fixture(scope="module")
def runs(model):
    """The model on each side."""
    return run_all(model)


def test_one_device_trains_it(runs):
    losses = runs["plain"].losses
    assert len(set(losses)) == len(losses)


@pytest.mark.parametrize("side", ["impl", "threads", "lanes"])
def test_impl_trains_it_as_one_device_does(model, runs, side):
    if model.ours:
        assert isinstance(runs[side], str)
    else:
        assert differences(runs[side], runs["plain"], model.apart) == []


def test_the_reference_trains_it_as_impl_does(model, runs):
    found = result_of(model, runs)
    assert model.races or (found.reference == "same") == (not model.reference)


def test_the_published_result_is_that_of_this_run(model, runs):
    found, published = result_of(model, runs), results()[model.name]
    for side in ("plain", "impl"):
        expected = pytest.approx(published.losses.get(side, []), rel=ELSEWHERE)
        assert found.losses.get(side, []) == expected
    for field in ("package", "chosen_for", "impl", "wrong"):
        assert getattr(found, field) == getattr(published, field)
    assert (published.reference == "same") == (not model.reference)
    assert published.deviation is None or published.deviation <= LOSSES


def test_every_model_is_published_and_nothing_else():
    assert list(results()) == list(MODELS)


@pytest.mark.parametrize("name", ["ResNet", "DenseNet", "EfficientNet"])
def test_batch_statistics_are_the_references(topology, name):
    """What a part of the batch gives is another thing than what the batch gives."""
    runs = [
        steps.run(MODELS[name], side, batch_statistics=True)
        for side in ("aligned impl", "aligned reference")
    ]
    assert unequal(*runs) == []
