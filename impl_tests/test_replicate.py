"""impl.replicate: errors of invalid modules, and arguments of the copies."""

import gc
import sys

import pytest
import torch
from torch import nn

from impl import replicate


def with_parameter():
    module = nn.Linear(2, 2)
    module.late = nn.UninitializedParameter()
    return module


def with_buffer():
    module = nn.Linear(2, 2)
    module.register_buffer("late", nn.UninitializedBuffer())
    return module


def below_others():
    return nn.Sequential(nn.Linear(2, 2), with_parameter(), nn.Linear(2, 2))


@pytest.mark.parametrize("detach", [False, True])
@pytest.mark.parametrize("make", [with_parameter, with_buffer, below_others, nn.LazyBatchNorm1d])
def test_uninitialized_tensor_raises_with_advice(topology, make, detach):
    module = make().to(topology.device(0))
    for devices in topology.take(1), topology.take(2):
        with pytest.raises(ValueError, match=r"in replicate\. Call `forward`"):
            replicate(module, devices, detach)


@pytest.mark.parametrize(
    ("detach", "error", "text"),
    [
        (False, AssertionError, "Broadcast function not implemented for CPU tensors"),
        (True, RuntimeError, r"All tensors must be on devices\[0\]: 0"),
    ],
)
def test_module_on_the_cpu_raises_for_other_devices(topology, detach, error, text):
    with pytest.raises(error, match=text):
        replicate(nn.Linear(1, 1), [0, 0], detach)


def test_module_on_the_cpu_has_replicas_on_the_cpu():
    module = nn.Linear(1, 1)
    replicas = replicate(module, ["cpu", "cpu"])
    assert [each.weight.tolist() for each in replicas] == [module.weight.tolist()] * 2


@pytest.mark.parametrize("detach", [False, True])
def test_module_on_a_device_raises_for_the_cpu(topology, detach):
    module = nn.Linear(1, 1).to(topology.device(0))
    with pytest.raises(RuntimeError, match=r"All tensors must be on devices\[0\]: cpu"):
        replicate(module, ["cpu", "cpu"], detach)


def test_buffer_size_is_passed_to_the_copies(monkeypatch):
    module, sizes = sys.modules["impl.replicate"], []

    def note(copy):
        return lambda *args, **kwargs: sizes.append(kwargs) or copy(*args, **kwargs)

    for name in ("attached_copies", "detached_copies"):
        monkeypatch.setattr(module, name, note(getattr(module, name)))
    replicate(nn.BatchNorm1d(1), ["cpu", "cpu"], buffer_size=7)
    assert sizes == [{"buffer_size": 7}] * 2


def test_buffer_is_copied_once(monkeypatch):
    module, found = sys.modules["impl.replicate"], []
    network = nn.Module()
    for name, requires_grad in (("learnt", True), ("counted", False)):
        network.register_buffer(name, torch.ones(1, requires_grad=requires_grad))

    def note(copy):
        def copies(tensors, *args, **kwargs):
            found.append([tensor.requires_grad for tensor in tensors])
            return copy(tensors, *args, **kwargs)

        return copies

    for name in ("attached_copies", "detached_copies"):
        monkeypatch.setattr(module, name, note(getattr(module, name)))
    replicate(network, ["cpu", "cpu"])
    assert found == [[True], [False]]


def test_garbage_collector_is_paused_while_replicas_are_built(monkeypatch):
    module, enabled = sys.modules["impl.replicate"], []
    build = module.build_replicas
    monkeypatch.setattr(
        module, "build_replicas", lambda *a: enabled.append(gc.isenabled()) or build(*a)
    )
    replicate(nn.Identity(), ["cpu"])
    assert enabled == [False]
