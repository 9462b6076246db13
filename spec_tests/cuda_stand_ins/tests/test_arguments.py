"""The stand-ins convert their arguments as the real primitives do."""

import numpy as np
import pytest
import torch

from spec_tests.cuda_stand_ins import STAND_INS
from spec_tests.strategies.tensors import counting

WRONG_TYPE = r"_scatter\(\): incompatible function arguments"


def scatter(topology, devices=None, sizes=None, dim=0, streams=None):
    devices = [topology.device(0).index] * 2 if devices is None else devices
    return STAND_INS["_scatter"](counting((4, 2)), devices, sizes, dim, streams)


@pytest.mark.parametrize("sizes", [(1, 3), {1: 0, 3: 0}.keys(), np.array([1, 3])], ids=type)
def test_collection_of_sizes_is_accepted(topology, sizes):
    assert [len(chunk) for chunk in scatter(topology, sizes=sizes)] == [1, 3]


def test_generator_of_sizes_is_accepted(topology):
    chunks = scatter(topology, sizes=(size for size in (1, 3)))
    assert [len(chunk) for chunk in chunks] == [1, 3]


@pytest.mark.parametrize(
    "sizes", [iter([1, 3]), {1: 0, 3: 0}, torch.tensor([1, 3]), "13", [1.0, 3.0]], ids=type
)
def test_sizes_of_another_type_raise(topology, sizes):
    with pytest.raises(TypeError, match=WRONG_TYPE):
        scatter(topology, sizes=sizes)


@pytest.mark.parametrize("dim", [1.0, None, "0", 2**63])
def test_dim_of_another_type_raises_before_devices_are_checked(topology, dim):
    with pytest.raises(TypeError, match=WRONG_TYPE):
        scatter(topology, devices=[], dim=dim)


@pytest.mark.parametrize("size", [-1, 1.0, 2**64])
def test_buffer_size_of_another_type_raises(topology, size):
    with pytest.raises(TypeError, match="incompatible function arguments"):
        STAND_INS["_broadcast_coalesced"]([], [topology.device(0).index], size)


@pytest.mark.parametrize("streams", [np.array([]), range(0), ""], ids=type)
def test_empty_sequence_of_streams_is_accepted(topology, streams):
    assert len(scatter(topology, streams=streams)) == 2


def test_streams_are_converted_before_devices_are_checked(topology):
    with pytest.raises(RuntimeError, match="Expected a sequence"):
        scatter(topology, devices=[], streams=3)


def test_stream_of_another_device_type_raises(topology):
    stream = torch.Stream(stream_id=0, device_index=0, device_type=0)  # a stream of the CPU
    with pytest.raises(RuntimeError, match="device_type"):
        scatter(topology, devices=[], streams=[stream])
