"""impl._compiled: which replicas count as running compiled code."""

import pytest
import torch
from torch import nn

import impl
from impl import _compiled
from impl._compiled import has_compiled_code


def test_all_above_a_compiled_module_have_compiled_code_wherever_it_is_reached_first():
    shared = torch.compile(nn.Linear(1, 1), backend="eager")
    net = nn.Sequential(shared, nn.Sequential(nn.Sequential(shared), nn.Tanh()))
    for replica in impl.replicate(net, ["cpu", "cpu"]):
        found = [has_compiled_code(each) for each in (replica, replica[1], replica[1][0])]
        assert found == [True] * 3
        assert not has_compiled_code(replica[1][1])


@pytest.mark.parametrize("depth", [0, 1])
def test_where_pytorch_does_not_say_how_replicas_run_uncompiled(monkeypatch, depth):
    monkeypatch.setattr(_compiled, "compilation_in_place", lambda _: None)
    net = nn.Sequential(nn.Linear(1, 1))
    called = net[0] if depth else net
    called.compile(backend="eager")
    one, other = impl.replicate(net, ["cpu", "cpu"], detach=True)
    assert not has_compiled_code(one)
    with torch.no_grad():
        other[0].weight.fill_(3)
        other[0].bias.fill_(1)
    assert other(torch.ones(1, 1)).item() == 4
