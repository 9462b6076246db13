"""impl.replicate: what it refuses, in its own words."""

import pytest
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
def test_what_is_not_initialized_is_refused_by_what_to_do_about_it(topology, make, detach):
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
def test_a_module_on_the_cpu_is_refused_for_devices(topology, detach, error, text):
    with pytest.raises(error, match=text):
        replicate(nn.Linear(1, 1), [0, 0], detach)


def test_a_module_on_the_cpu_has_replicas_there():
    module = nn.Linear(1, 1)
    replicas = replicate(module, ["cpu", "cpu"])
    assert [each.weight.tolist() for each in replicas] == [module.weight.tolist()] * 2
