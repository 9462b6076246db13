"""impl.replicate and impl._replicas: members, construction and copies of replicas."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from impl._module_tree import collect_tree
from impl.replicate import replicate

CPUS = ["cpu", "cpu"]
BOTH = pytest.mark.parametrize("detach", [False, True], ids=["attached", "detached"])


def with_setattr(kind):
    """Return a subclass of ``kind`` with its own ``__setattr__``. impl calls it for replicas."""

    class WithSetattr(kind):
        def __setattr__(self, name, value):
            super().__setattr__(name, value)

    return WithSetattr


class MixedModule(nn.Module):
    """A module with a shared submodule, a tied weight, and members that are None.

    One buffer requires grad.
    """

    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
        self.again = self.first
        self.tied = nn.Linear(2, 2)
        self.tied.weight = self.first[0].weight
        self.register_parameter("missing", None)
        self.scale = nn.Parameter(torch.ones(2))
        self.register_module("missing_child", None)
        self.register_buffer("missing_buffer", None)
        self.register_buffer("learnt", torch.ones(2, requires_grad=True))
        self.comment = ["shared"]

    def forward(self, x):
        return self.tied(self.again(x)) * self.scale + self.learnt


def structure(replica):
    """Return the names of all members and attributes of ``replica``."""
    return [
        (name, sorted(vars(module)), sorted(module._former_parameters), *map(sorted, members))
        for name, module in replica.named_modules()
        for members in [(module._parameters, module._buffers, module._modules)]
    ]


def tensors(replica):
    return [
        tensor
        for module in replica.modules()
        for tensor in (*module._former_parameters.values(), *module._buffers.values())
        if tensor is not None
    ]


def test_module_in_many_places_is_listed_once():
    net = nn.Linear(1, 1)
    for _ in range(40):
        net = nn.Sequential(net, net)
    tree = collect_tree(net)
    # If an assertion used ``tree``, its failure would print 2**40 modules.
    found = len(tree.modules), len(tree.parameters)
    assert found == (41, 2)


@BOTH
def test_replicas_of_a_module_with_custom_setattr_have_the_same_structure(detach):
    plain, assigned = (
        replicate(kind(), CPUS, detach) for kind in (MixedModule, with_setattr(MixedModule))
    )
    assert [structure(r) for r in plain] == [structure(r) for r in assigned]
    found = [[(t.requires_grad, t.is_leaf) for t in tensors(r)] for r in plain]
    assert found == [[(t.requires_grad, t.is_leaf) for t in tensors(r)] for r in assigned]


def test_global_registration_hooks_are_called_with_the_children_of_replicas():
    module, seen = nn.Sequential(nn.ReLU()), []
    handle = torch_module.register_module_module_registration_hook(
        lambda parent, name, child: seen.append(name)
    )
    try:
        replicate(module, CPUS)
    finally:
        handle.remove()
    assert seen == ["0", "0"]


def test_replica_can_be_replicated():
    inner, _ = replicate(replicate(MixedModule(), CPUS)[0], CPUS)
    assert inner._former_parameters == {}
    assert inner._is_replica


class ShallowCopied(nn.Linear):
    """A module whose replicas are shallow copies, which share its dictionary of parameters."""

    def _replicate_for_data_parallel(self):
        return copy.copy(self)


def test_a_replica_may_be_a_shallow_copy_of_its_module(topology):
    module = ShallowCopied(2, 1).to(topology.device(0))
    replicas = replicate(module, topology.take(2))
    assert [type(replica.weight) for replica in replicas] == [Tensor] * 2
    assert [*module._parameters] == ["weight", "bias"]


def test_the_first_copy_of_a_wrapper_parameter_is_no_parameter(topology):
    rows = [torch.ones(2, 1), torch.ones(1, 1)]
    nested = torch.nested.nested_tensor(rows, layout=torch.jagged, device=topology.device(0))
    module = nn.Module()
    module.weight = nn.Parameter(nested)
    [replica] = replicate(module, topology.take(1))
    assert not list(replica.parameters())
    replica.weight.values().sum().backward()
    assert module.weight.grad.values().tolist() == [[1.0]] * 3
