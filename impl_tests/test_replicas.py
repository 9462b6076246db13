"""impl._replicas: members, construction and copies of replicas."""

import collections
import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from impl import _replicas
from impl._replicas import FormerParameters, collect_tree
from impl.replicate import replicate

CPUS = ["cpu", "cpu"]
#: The dictionary of forward hooks of all replicas of CustomReplication.
SHARED_HOOKS = collections.OrderedDict()
BOTH = pytest.mark.parametrize("detach", [False, True], ids=["attached", "detached"])


class CustomReplication(nn.Linear):
    """A module whose replicas share their dictionary of forward hooks and lack pre-hooks."""

    def _replicate_for_data_parallel(self):
        replica = super()._replicate_for_data_parallel()
        replica._forward_hooks = SHARED_HOOKS
        del replica._forward_pre_hooks
        return replica


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


def test_tree_lists_each_member_once_with_parents_first():
    module = MixedModule()
    tree = collect_tree(module)
    assert tree.modules == list(module.modules())
    assert [*map(id, tree.parameters)] == [*map(id, module.parameters())]
    assert [*map(id, tree.buffers)] == [*map(id, module.buffers())]


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


def test_replica_of_an_lstm_can_be_deepcopied():
    # nn.LSTM also keeps its parameters in the list _flat_weights.
    lstm = copy.deepcopy(replicate(nn.LSTM(2, 2), CPUS)[1])
    assert lstm._flat_weights[0] is lstm.weight_ih_l0


def test_buffer_that_is_a_parameter_becomes_a_parameter_of_replica_0_only():
    module = nn.Module()
    module.register_buffer("odd", nn.Parameter(torch.ones(2)))
    first, second = replicate(module, CPUS, detach=True)
    assert (list(first._parameters), list(first._buffers)) == (["odd"], [])
    assert (list(second._parameters), list(second._buffers)) == ([], ["odd"])


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


def test_hook_dictionaries_outside_a_modules_own_dict_are_not_copied():
    module = CustomReplication(2, 2)
    replicas = replicate(module, CPUS)
    assert all(replica._forward_hooks is SHARED_HOOKS for replica in replicas)
    assert not any("_forward_pre_hooks" in vars(replica) for replica in replicas)
    assert len({id(m._backward_hooks) for m in (module, *replicas)}) == 3


class Unhashable:
    """An unhashable object with a method."""

    def __eq__(self, other):
        return type(other) is Unhashable

    def method(self):
        return self


class BoundMethods(nn.Module):
    """A module whose attributes are methods of itself, of its child and of other objects."""

    def __init__(self, outsider):
        super().__init__()
        self.inner = nn.Linear(1, 1)
        self.own, self.below = self.call, self.inner.forward
        self.outside, self.unhashable = outsider.forward, Unhashable().method

    def call(self):
        return self


@pytest.mark.parametrize("kind", [BoundMethods, with_setattr(BoundMethods)])
def test_methods_of_the_module_and_its_children_are_rebound_to_the_replicas(kind):
    outsider = nn.Linear(1, 1)
    module = kind(outsider)
    for replica in replicate(module, CPUS):
        assert replica.own.__self__ is replica
        assert replica.below.__self__ is replica.inner is not module.inner
        assert replica.outside.__self__ is outsider
        assert replica.unhashable.__self__ is module.unhashable.__self__


class Delegating(nn.Module):
    """A module whose ``forward`` is ``target.forward``, if a target is given."""

    def __init__(self, target=None):
        super().__init__()
        if target is not None:
            self.target, self.forward = target, target.forward

    def forward(self, x):
        return x


def test_method_of_a_child_of_the_same_class_is_set_on_the_replica():
    for replica in replicate(Delegating(Delegating()), CPUS):
        assert replica.forward.__self__ is replica.target
        assert "forward" not in vars(replica.target)


def test_modules_own_method_set_as_attribute_is_not_set_on_the_replica():
    module = Delegating()
    module.forward = module.forward
    for replica in replicate(module, CPUS):
        assert "forward" not in vars(replica)


class HookFromGetattribute(nn.Linear):
    """A layer whose ``__getattribute__`` returns another replication method."""

    def __getattribute__(self, name):
        if name == "_replicate_for_data_parallel":
            return lambda: nn.Identity()
        return super().__getattribute__(name)


def test_replication_method_from_getattribute_is_called(topology):
    module = HookFromGetattribute(1, 1).to(topology.device(0))
    replicas = replicate(module, topology.take(2))
    assert [type(replica) for replica in replicas] == [nn.Identity, nn.Identity]


class Subclass(torch.Tensor):
    """A tensor class without changes."""


def test_compiled_code_of_a_module_is_no_attribute_of_its_replicas():
    module = nn.Linear(1, 1)
    expected = dict(vars(module))
    module._compiled_call_impl = module._call_impl
    assert _replicas._uncompiled_state(module) == expected


def test_only_instances_of_parameter_are_parameters():
    tensor = torch.ones(1)
    found = [_replicas._is_parameter(each) for each in (tensor, tensor.as_subclass(Subclass))]
    assert found == [False, False]
    assert _replicas._is_parameter(nn.Parameter(tensor))


class Forgetful(nn.Module):
    """A module that keeps no attribute ``_former_parameters``."""

    def __setattr__(self, name, value):
        if name != "_former_parameters":
            super().__setattr__(name, value)


def test_a_replica_may_refuse_the_dictionary_of_former_parameters(topology):
    module = Forgetful().to(topology.device(0))
    replicas = replicate(module, topology.take(2))
    assert [type(replica) for replica in replicas] == [Forgetful] * 2


class ShallowCopied(nn.Linear):
    """A module whose replicas are shallow copies, which share its dictionary of parameters."""

    def _replicate_for_data_parallel(self):
        return copy.copy(self)


def test_a_replica_may_be_a_shallow_copy_of_its_module(topology):
    module = ShallowCopied(2, 1).to(topology.device(0))
    replicas = replicate(module, topology.take(2))
    assert [type(replica.weight) for replica in replicas] == [Tensor] * 2
    assert [*module._parameters] == ["weight", "bias"]


def test_deepcopy_of_a_leaf_keeps_its_gradient():
    leaf = torch.ones(2, requires_grad=True)
    leaf.sum().backward()
    copied = copy.deepcopy(FormerParameters(weight=leaf))["weight"]
    assert copied is not leaf
    assert copied.grad.tolist() == [1, 1]
