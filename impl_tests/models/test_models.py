"""Models train with impl as on one device and as with torch.nn.parallel."""

import pytest

from impl_tests.consumers.programs_page import read_results
from impl_tests.models import training
from impl_tests.models.catalogue import MODELS
from impl_tests.models.differences import LOSS_TOLERANCE, find_bit_differences, find_differences
from impl_tests.models.results import RESULTS, run_all, summarize

#: Relative tolerance between published losses and those of this run. Processors round differently.
PROCESSOR_TOLERANCE = 1e-3


@pytest.fixture(scope="module", params=MODELS)
def model(request, topology):
    """Return one of the models."""
    return MODELS[request.param]


@pytest.fixture(scope="module")
def runs(model):
    """Return the model's run with each variant."""
    return run_all(model)


def test_losses_change_on_one_device(runs):
    losses = runs["one device"].losses
    assert len(set(losses)) == len(losses)


@pytest.mark.parametrize("variant", ["impl", "threads", "cpu"])
def test_impl_equals_one_device_within_rounding(model, runs, variant):
    assert find_differences(runs[variant], runs["one device"], model.not_compared) == []


def test_impl_equals_the_reference_unless_the_catalogue_has_an_error(model, runs):
    found = summarize(model, runs)
    assert model.has_race or (found["reference"] == "same") == (not model.reference)


def test_the_published_result_equals_this_run(model, runs):
    found, published = summarize(model, runs), read_results(RESULTS)[model.name]
    losses, expected = (
        {variant: loss for variant, loss in result["losses"].items() if variant != "reference"}
        for result in (found, published)
    )
    assert losses == pytest.approx(expected, rel=PROCESSOR_TOLERANCE)
    for field in ("package", "covers", "impl", "wrong"):
        assert found[field] == published[field]
    assert (published["reference"] == "same") == (not model.reference)
    assert published["deviation"] is None or published["deviation"] <= LOSS_TOLERANCE


def test_each_model_of_the_catalogue_has_a_published_result():
    assert list(read_results(RESULTS)) == list(MODELS)


@pytest.mark.parametrize("name", ["ResNet", "DenseNet", "EfficientNet"])
def test_training_with_batch_statistics_equals_the_reference(topology, name):
    # impl is not compared with one device: a chunk's statistics differ from the batch's.
    runs = [
        training.run(MODELS[name], variant, batch_statistics=True)
        for variant in ("impl", "reference")
    ]
    assert find_bit_differences(*runs) == []
