"""impl trains and evaluates on a back end each model that PyTorch itself trains there.

The tests need no stream, so they run on each back end, also on ``--without all``.
"""

import warnings

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

import impl
from impl_tests.models.catalogue import MODELS
from impl_tests.models.differences import find_differences, find_output_differences
from impl_tests.models.model import ROWS
from impl_tests.models.results import try_run
from impl_tests.models.tensors import collect_tensors
from impl_tests.models.training import PLAIN_CPU
from spec_tests.checks.outcome import seed_generators
from spec_tests.machine.topology import not_run

#: Models whose outputs in evaluation mode contain caches, or a list with an entry for each image.
#: ``gather`` does not concatenate caches, and it merges the entries of the lists.
MERGED = {"Mamba", "Mamba 2", "Faster R-CNN", "RetinaNet"}


@pytest.fixture(scope="module", params=MODELS)
def model(request, topology):
    """One of the models."""
    return MODELS[request.param]


@pytest.fixture(scope="module")
def plain(model):
    """The model's run on one device without a wrapper."""
    found = try_run(model, "one device")
    if isinstance(found, str):
        not_run(f"fails on one device without a wrapper: {found}")
    return found


@pytest.fixture(scope="module")
def parallel(model, plain):
    """The model's run on two devices."""
    found = try_run(model, "impl")
    assert not isinstance(found, str), found
    return found


def test_training_on_two_devices_equals_one_device(model, plain, parallel):
    assert find_differences(parallel, plain, model.not_compared) == []


def test_training_on_two_devices_equals_the_cpu(model, plain, parallel):
    cpu = try_run(model, PLAIN_CPU)
    differences = find_differences(plain, cpu, model.not_compared)
    if differences:
        not_run(f"differs from the CPU on one device without a wrapper: {differences[0]}")
    assert find_differences(parallel, cpu, model.not_compared) == []


@torch.no_grad()
def test_forward_on_all_devices_equals_a_forward_of_the_plain_module(model, topology):
    # The steps of test_multi_gpu_data_parallel_forward in the common tests of transformers.
    # Makers of back ends run it: https://github.com/pytorch/pytorch/issues/143239.
    seed_generators()
    inputs = tree_map_only(
        Tensor, lambda tensor: tensor.to(topology.device(0)), model.inputs(ROWS)
    )
    module = model.build()
    try:
        expected = _collect_outputs(module.to(topology.device(0)).eval(), inputs)
    except Exception as error:
        not_run(f"fails on one device without a wrapper: {error}")
    found = _collect_outputs(impl.DataParallel(module), inputs)
    if model.name not in MERGED:
        assert find_output_differences(found, expected, model.not_compared) == []


def _collect_outputs(module, inputs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        output = module(**inputs) if isinstance(inputs, dict) else module(*inputs)
    return collect_tensors(output)
