"""impl.replicate and impl._replicas: members, construction and copies of replicas."""

import copy

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from impl._module_tree import collect_tree
from impl.replicate import replicate

CPUS = ["cpu", "cpu"]


def test_module_in_many_places_is_listed_once():
    net = nn.Linear(1, 1)
    for _ in range(40):
        net = nn.Sequential(net, net)
    tree = collect_tree(net)
    # If an assertion used ``tree``, its failure would print 2**40 modules.
    found = len(tree.modules), len(tree.parameters)
    assert found == (41, 2)


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
    inner, _ = replicate(replicate(nn.Linear(2, 2), CPUS)[0], CPUS)
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
