"""impl.replicate: errors for invalid modules, script modules, the paused collector."""

import gc

import pytest
import torch
from torch import nn

from impl import replicate
from impl.replicate import (
    _replicatable_module,
)

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit")
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


def test_garbage_collector_is_paused_while_replicas_are_built():
    enabled = []

    class Recording(nn.Module):
        def _replicate_for_data_parallel(self):
            enabled.append(gc.isenabled())
            return super()._replicate_for_data_parallel()

    replicate(Recording(), ["cpu"])
    assert enabled == [False]


def scripted():
    return torch.jit.script(nn.Sequential(nn.Linear(2, 2)))


def test_a_child_that_is_none_is_no_python_child():
    module = scripted()
    module._modules = {"child": None}
    assert _replicatable_module(module)


def test_the_first_copy_of_a_wrapper_parameter_is_no_parameter(topology):
    rows = [torch.ones(2, 1), torch.ones(1, 1)]
    nested = torch.nested.nested_tensor(rows, layout=torch.jagged, device=topology.device(0))
    module = nn.Module()
    module.weight = nn.Parameter(nested)
    [replica] = replicate(module, topology.take(1))
    assert not list(replica.parameters())
    replica.weight.values().sum().backward()
    assert module.weight.grad.values().tolist() == [[1.0]] * 3
