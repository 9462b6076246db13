"""impl.replicate: the tensors that receive gradients, and modules of TorchScript."""

from importlib import import_module
from types import SimpleNamespace

import torch
from torch import nn

from impl._replica import collect_tree

replicate_module = import_module("impl.replicate")


def test_buffers_without_grad_receive_no_gradients():
    module = nn.BatchNorm1d(2)
    attached, detached = replicate_module._partition_tensors(collect_tree(module), detach=False)
    assert [*map(id, attached)] == [*map(id, module.parameters())]
    assert [*map(id, detached)] == [*map(id, module.buffers())]


def test_private_broadcast_keeps_gradients_by_default(topology):
    parameter = nn.Parameter(torch.ones(1, device=topology.device(0)))
    rows = replicate_module._broadcast_coalesced_reshape([parameter], topology.devices)
    assert all(row[0].requires_grad for row in rows)


def test_a_script_module_may_have_missing_children_but_no_python_child(monkeypatch):
    modules = {
        name: SimpleNamespace(_modules={"child": child})
        for name, child in {"missing": None, "python": nn.Identity()}.items()
    }
    monkeypatch.setattr(
        replicate_module, "_is_script_module", lambda module: module in modules.values()
    )
    assert replicate_module._are_replicatable([modules["missing"]])
    assert not replicate_module._are_replicatable([modules["python"]])
    monkeypatch.setattr(replicate_module, "_is_jit_enabled", lambda: False)
    assert replicate_module._are_replicatable([modules["python"]])
