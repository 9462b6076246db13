"""impl._compiled: which replicas count as running compiled code."""

import torch
from torch import nn

import impl
from impl._compiled import has_compiled_code


def test_all_above_a_compiled_module_have_compiled_code_wherever_it_is_reached_first():
    shared = torch.compile(nn.Linear(1, 1), backend="eager")
    net = nn.Sequential(shared, nn.Sequential(nn.Sequential(shared), nn.Tanh()))
    for replica in impl.replicate(net, ["cpu", "cpu"]):
        found = [has_compiled_code(each) for each in (replica, replica[1], replica[1][0])]
        assert found == [True] * 3
        assert not has_compiled_code(replica[1][1])
