"""impl._diagnostics: the notes of frequent errors of replicas."""

import pytest
import torch
from torch import nn

import impl
from impl import DataParallel

CPUS = ["cpu", "cpu"]


@pytest.mark.parametrize("in_turn", [False, True], ids="in_turn={}".format)
def test_error_of_batch_norm_has_a_note_with_the_shape_of_the_chunk(in_turn):
    wrapper = DataParallel(nn.BatchNorm1d(2), CPUS, in_turn=in_turn)
    with pytest.raises(ValueError, match="in replica 1 on device cpu") as caught:
        wrapper(torch.randn(3, 2))
    (note,) = caught.value.__notes__
    assert note.startswith("Replica 1 got a tensor of shape (1, 2).")
    assert note not in str(caught.value)


@pytest.mark.parametrize("call", ["wrapper", "replicate"])
def test_a_replica_that_is_replicated_from_another_device_is_refused_with_a_note(topology, call):
    devices = topology.take(2)
    topology.require(distinct=2)

    class Replicating(nn.Linear):
        def forward(self, x):
            return impl.replicate(self, devices)[0].extra_repr()

    module = Replicating(2, 2) if call == "replicate" else DataParallel(nn.Linear(2, 2), devices)
    with pytest.raises(RuntimeError, match="in replica 1 on device") as caught:
        DataParallel(module.to(devices[0]), devices)(torch.ones(2, 2))
    assert caught.value.__notes__[-1].startswith(f"Replica 1 and its tensors are on {devices[1]}.")


def test_another_value_error_of_a_replica_has_no_note():
    wrapper = DataParallel(nn.BatchNorm1d(2), CPUS)
    with pytest.raises(ValueError, match="expected 2D or 3D input") as caught:
        wrapper(torch.randn(3))
    assert not hasattr(caught.value, "__notes__")


def test_a_forward_that_freezes_parameters_is_refused_with_a_note():
    class Freezing(nn.Linear):
        def forward(self, x):
            self.weight.requires_grad = False
            return super().forward(x)

    with pytest.raises(RuntimeError, match="leaf") as caught:
        DataParallel(Freezing(2, 2), CPUS)(torch.ones(2, 2))
    assert "outside of the forward" in caught.value.__notes__[-1]


def test_a_tensor_that_is_loaded_as_a_parameter_is_refused_with_a_note():
    class Loading(nn.Linear):
        def forward(self, x):
            self.load_state_dict(self.state_dict(), assign=True)
            return super().forward(x)

    with pytest.raises(RuntimeError, match="weight") as caught:
        DataParallel(Loading(2, 2), CPUS)(torch.ones(2, 2))
    assert "pass nn.Parameter values" in caught.value.__notes__[-1]
