"""Replicas of an aligned DataParallel have aligned tensors."""

import pytest
import torch
from torch import nn

import impl
from impl_tests.models.alignment import align_replicas


class OddSizes(nn.Module):
    """A module with a recurrent layer and two tied layers. Most tensors have odd sizes."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 5)
        self.tied = nn.Linear(3, 5)
        self.tied.weight = self.layer.weight
        self.recurrent = nn.RNN(3, 1)


@pytest.fixture(params=[torch.nn.DataParallel, impl.DataParallel], ids=["reference", "impl"])
def replica(request, topology):
    """The replica on the second device."""
    devices = topology.devices[:2]
    wrapped = align_replicas(request.param)(OddSizes().to(devices[0]), devices)
    return wrapped.replicate(wrapped.module, wrapped.device_ids)[1]


def test_tensors_are_aligned_to_64_bytes(replica):
    tensors = [replica.layer.weight, replica.layer.bias, replica.tied.bias]
    tensors += replica.recurrent._flat_weights
    assert {tensor.data_ptr() % 64 for tensor in tensors} == {0}


def test_tied_weights_remain_tied(replica):
    assert replica.tied.weight is replica.layer.weight


def test_flat_weights_of_a_recurrent_layer_are_its_attributes(replica):
    assert replica.recurrent._flat_weights[0] is replica.recurrent.weight_ih_l0
