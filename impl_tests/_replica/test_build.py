"""impl._replica.module_tree, _replica, _former and _collector: how replicas are built."""

import collections
import contextlib
import copy
import gc
import io
import weakref

import pytest
import torch
from torch import nn
from torch.nn.modules import module as torch_module

from impl._compat.gc_pause import use_paused_collector
from impl._replica import build as replica_build
from impl._replica.former_parameters import FormerParameters
from impl._replica.module_tree import collect_tree
from impl.replicate import replicate

CPUS = ["cpu", "cpu"]
OWN = collections.OrderedDict()
BOTH = pytest.mark.parametrize("detach", [False, True], ids=["attached", "detached"])


class Own(torch.Tensor):
    """A class of tensors that are no parameters."""


class Reshaping(nn.Linear):
    """Its replicas share one dictionary of hooks, and lack another one."""

    def _replicate_for_data_parallel(self):
        twin = super()._replicate_for_data_parallel()
        twin._forward_hooks = OWN
        del twin._forward_pre_hooks
        return twin


class Zoo(nn.Module):
    """What a module may hold: shared, tied and absent members, and buffers of both kinds."""

    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
        self.again = self.first
        self.tied = nn.Linear(2, 2)
        self.tied.weight = self.first[0].weight
        self.register_parameter("absent", None)
        self.scale = nn.Parameter(torch.ones(2))
        self.register_module("nobody", None)
        self.register_buffer("nothing", None)
        self.register_buffer("learnt", torch.ones(2, requires_grad=True))
        self.note = ["shared"]

    def forward(self, x):
        return self.tied(self.again(x)) * self.scale + self.learnt


class AssignedZoo(Zoo):
    """The same for which attribute assignment is overridden."""

    def __setattr__(self, name, value):
        super().__setattr__(name, value)


def shape(replica):
    """What stands where in a replica, without saying which replica it is."""
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


def test_a_tree_lists_each_thing_once_and_parents_first():
    zoo = Zoo()
    tree = collect_tree(zoo)
    assert tree.modules == list(zoo.modules())
    assert [id(it) for it in tree.parameters] == [id(it) for it in zoo.parameters()]
    assert [id(it) for it in tree.buffers] == [id(it) for it in zoo.buffers()]


def test_a_module_in_many_places_is_listed_once():
    net = nn.Linear(1, 1)
    for _ in range(40):
        net = nn.Sequential(net, net)
    tree = collect_tree(net)
    found = len(tree.modules), len(tree.parameters)  # An assertion would print the modules.
    assert found == (41, 2)


@BOTH
def test_written_and_assigned_replicas_are_alike(detach):
    written, assigned = (replicate(kind(), CPUS, detach) for kind in (Zoo, AssignedZoo))
    assert [shape(replica) for replica in written] == [shape(replica) for replica in assigned]
    found = [[(t.requires_grad, t.is_leaf) for t in tensors(each)] for each in written]
    assert found == [[(t.requires_grad, t.is_leaf) for t in tensors(each)] for each in assigned]


@pytest.mark.parametrize("kind", [Zoo, AssignedZoo])
@BOTH
def test_replicas_can_be_deepcopied(kind, detach):
    x = torch.rand(3, 2)
    for replica in replicate(kind(), CPUS, detach):
        found = copy.deepcopy(replica)
        assert shape(found) == shape(replica)
        assert all(tensor.is_leaf for tensor in tensors(found))
        theirs = {tensor.data_ptr() for tensor in tensors(replica)}
        assert theirs.isdisjoint(tensor.data_ptr() for tensor in tensors(found))
        assert found.tied.weight is found.first[0].weight
        assert torch.equal(found(x), replica(x))
        assert type(copy.deepcopy(found)) is kind


def test_a_deepcopied_replica_learns_by_itself():
    module = nn.Linear(2, 2)
    found = copy.deepcopy(replicate(module, CPUS)[1])
    found(torch.ones(1, 2)).sum().backward()
    assert found.weight.grad.tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert module.weight.grad is None


def test_a_pickled_replica_needs_nothing_of_this_package():
    file = io.BytesIO()
    torch.save(replicate(nn.Linear(2, 2), CPUS), file)
    assert b"impl" not in file.getvalue()
    file.seek(0)
    first, _ = torch.load(file, weights_only=False)
    assert type(first._former_parameters) is collections.OrderedDict
    assert list(first._former_parameters) == ["weight", "bias"]


def test_former_parameters_stand_before_what_holds_their_tensors():
    lstm, _ = replicate(nn.LSTM(2, 2), CPUS)
    plain, _ = replicate(nn.Linear(2, 2), CPUS)
    assert next(iter(vars(lstm))) == next(iter(vars(plain))) == "_former_parameters"
    assert isinstance(plain._former_parameters, FormerParameters)


def test_a_buffer_that_is_a_parameter_is_assigned():
    module = nn.Module()
    module.register_buffer("odd", nn.Parameter(torch.ones(2)))
    first, second = replicate(module, CPUS, detach=True)
    assert (list(first._parameters), list(first._buffers)) == (["odd"], [])
    assert (list(second._parameters), list(second._buffers)) == ([], ["odd"])


def test_a_replacement_of_the_hook_on_one_module_counts():
    module = nn.Sequential(nn.ReLU(), nn.ReLU())
    vars(module[1])["_replicate_for_data_parallel"] = lambda: nn.Tanh()
    replica, _ = replicate(module, CPUS)
    assert [type(child) for child in replica] == [nn.ReLU, nn.Tanh]


def test_global_hooks_on_registration_see_the_children():
    module, seen = nn.Sequential(nn.ReLU()), []
    handle = torch_module.register_module_module_registration_hook(
        lambda parent, name, child: seen.append(name)
    )
    try:
        replicate(module, CPUS)
    finally:
        handle.remove()
    assert seen == ["0", "0"]


def test_a_replica_can_be_replicated():
    inner, _ = replicate(replicate(Zoo(), CPUS)[0], CPUS)
    assert inner._former_parameters == {}
    assert inner._is_replica


@pytest.mark.parametrize("kind", [Zoo, AssignedZoo])
@BOTH
def test_nothing_refers_back_to_a_replica(kind, detach):
    with use_paused_collector():
        replicas = replicate(kind(), CPUS, detach)
        left = [weakref.ref(module) for replica in replicas for module in replica.modules()]
        del replicas
        assert [module() for module in left] == [None] * len(left)


@pytest.mark.parametrize("is_enabled", [True, False])
def test_the_collector_is_left_as_it_was(is_enabled):
    before = gc.isenabled()
    (gc.enable if is_enabled else gc.disable)()
    try:
        with contextlib.suppress(KeyError), use_paused_collector():
            within = gc.isenabled()
            raise KeyError
        assert (within, gc.isenabled()) == (False, is_enabled)
    finally:
        (gc.enable if before else gc.disable)()


def test_dictionaries_of_hooks_that_a_module_makes_itself_are_left_alone():
    replicas = replicate(Reshaping(2, 2), CPUS)
    assert all(replica._forward_hooks is OWN for replica in replicas)
    assert not any("_forward_pre_hooks" in vars(replica) for replica in replicas)


def test_other_dictionaries_of_hooks_are_copied():
    module = Reshaping(2, 2)
    replicas = replicate(module, CPUS)
    assert len({id(each._backward_hooks) for each in (module, *replicas)}) == 3


def test_only_parameters_count_as_such():
    tensors = [nn.Parameter(torch.ones(1)), torch.ones(1), torch.ones(1).as_subclass(Own)]
    assert [replica_build._is_parameter(tensor) for tensor in tensors] == [True, False, False]


class Watching(nn.Module):
    """Sees every attribute that is asked for."""

    def __getattribute__(self, name):
        return super().__getattribute__(name)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [(nn.Linear, True), (Zoo, True), (AssignedZoo, False), (Watching, False), (Reshaping, False)],
)
def test_plain_modules_are_written_and_others_assigned(kind, expected):
    assert replica_build._is_plain(kind) == expected


class Unhashable:
    """Equal to others of its kind."""

    def __eq__(self, other):
        return type(other) is Unhashable

    def method(self):
        return self


class Bound(nn.Module):
    """Has bound methods as attributes: of itself, of others in the tree, and of others yet."""

    def __init__(self, stranger):
        super().__init__()
        self.inner = nn.Linear(1, 1)
        self.own, self.below = self.call, self.inner.forward
        self.strange, self.unhashable = stranger.forward, Unhashable().method

    def call(self):
        return self


class AssignedBound(Bound):
    """The same for which attribute assignment is overridden."""

    def __setattr__(self, name, value):
        super().__setattr__(name, value)


@pytest.mark.parametrize("kind", [Bound, AssignedBound])
def test_methods_of_modules_in_the_tree_are_bound_to_their_replicas(kind):
    stranger = nn.Linear(1, 1)
    module = kind(stranger)
    for replica in replicate(module, CPUS):
        assert replica.own.__self__ is replica
        assert replica.below.__self__ is replica.inner is not module.inner
        assert replica.strange.__self__ is stranger
        assert replica.unhashable.__self__ is module.unhashable.__self__


class Leading(nn.Module):
    """Computes what another one of its kind does, where it leads one."""

    def __init__(self, follower=None):
        super().__init__()
        if follower is not None:
            self.follower, self.forward = follower, follower.forward

    def forward(self, x):
        return x


def test_a_method_of_another_module_of_the_kind_is_no_method_of_the_class():
    for replica in replicate(Leading(Leading()), CPUS):
        assert replica.forward.__self__ is replica.follower
        assert "forward" not in vars(replica.follower)


def test_a_method_that_the_class_provides_is_no_attribute_of_the_replica():
    module = Leading()
    module.forward = module.forward
    for replica in replicate(module, CPUS):
        assert "forward" not in vars(replica)


def test_an_attribute_that_is_not_there_is_not_moved():
    state = {"one": 1, "other": 2}
    for name, order in (("absent", ["one", "other"]), ("other", ["other", "one"])):
        replica_build._move_to_front(state, name)
        assert list(state.items()) == [(each, {"one": 1, "other": 2}[each]) for each in order]
