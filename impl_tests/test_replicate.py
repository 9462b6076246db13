"""impl.replicate: errors for invalid modules, and the pause of the garbage collector."""

import gc

import pytest
from torch import nn

from impl import replicate

DETACH = pytest.mark.parametrize("detach", [False, True], ids="detach={}".format)


def lazy_parameter():
    module = nn.Linear(2, 2)
    module.lazy = nn.UninitializedParameter()
    return module


def lazy_buffer():
    module = nn.Linear(2, 2)
    module.register_buffer("lazy", nn.UninitializedBuffer())
    return nn.Sequential(nn.Linear(2, 2), module, nn.Linear(2, 2))


@DETACH
@pytest.mark.parametrize("make", [lazy_parameter, lazy_buffer])
def test_error_for_an_uninitialized_tensor_says_to_call_forward(topology, make, detach):
    module = make().to(topology.device(0))
    for devices in topology.take(1), topology.take(2):
        with pytest.raises(ValueError, match=r"in replicate\. Call `forward`"):
            replicate(module, devices, detach)


@DETACH
def test_replicas_on_the_cpu_of_a_module_on_an_accelerator_raise(topology, detach):
    module = nn.Linear(1, 1).to(topology.device(0))
    with pytest.raises(RuntimeError, match=r"All tensors must be on devices\[0\]: cpu"):
        replicate(module, ["cpu", "cpu"], detach)


def test_garbage_collector_is_paused_while_replicas_are_built():
    enabled = []

    class Recording(nn.Module):
        def _replicate_for_data_parallel(self):
            enabled.append(gc.isenabled())
            return super()._replicate_for_data_parallel()

    replicate(Recording(), ["cpu"])
    assert enabled == [False]
