"""impl._references: objects that are shared, in cycles, or left as they are."""

from collections import OrderedDict
from functools import partial
from weakref import ref

import pytest
import torch
from torch import nn

from impl import replicate

CPUS = ["cpu", "cpu"]


def replicas_of(**attributes):
    """Return a module with a layer and ``attributes``, and its replicas."""
    module = nn.Sequential(nn.Linear(1, 1))
    vars(module).update({name: make(module) for name, make in attributes.items()})
    return module, replicate(module, CPUS)


@pytest.mark.parametrize(
    "value",
    [
        *([1, [2]], (3, 3), {"key": [None]}, {1}, [], [print], partial(int, base=2)),
        *({None}, {torch.ones(1): 2}),
    ],
    ids=repr,
)
def test_an_object_without_a_module_of_the_tree_stays_the_same(value):
    module, replicas = replicas_of(attribute=lambda _: value)
    assert all(replica.attribute is module.attribute for replica in replicas)


class ListSubclass(list):
    """A subclass of list."""


def test_a_subclass_of_a_container_stays_the_same():
    module, replicas = replicas_of(attribute=lambda module: ListSubclass([module[0]]))
    assert all(replica.attribute is module.attribute for replica in replicas)


def test_cycles_through_each_class_are_kept():
    def cycle(module):
        members = {"module": module[0]}
        members["self"] = partial(print, [(members, {1})])
        return members

    _, replicas = replicas_of(attribute=cycle)
    for replica in replicas:
        (listed,) = replica.attribute["self"].args
        assert listed[0][0] is replica.attribute
        assert replica.attribute["module"] is replica[0]


@pytest.mark.parametrize("name", ["weight", "buffer"])
@pytest.mark.parametrize("kind", [set, frozenset, dict.fromkeys, OrderedDict.fromkeys])
def test_a_tensor_of_the_tree_is_a_key_in_each_replica(kind, name):
    def make(module):
        module[0].register_buffer("buffer", torch.ones(1))
        return [kind([getattr(module[0], name), 1])]

    _, replicas = replicas_of(attribute=make)
    for replica in replicas:
        [keys] = replica.attribute
        assert len(keys) == 2
        assert getattr(replica[0], name) in keys


def test_a_partial_keeps_its_attributes():
    def make(module):
        function = partial(print, module[0])
        function.__wrapped__ = module[0].forward
        return function

    _, replicas = replicas_of(attribute=make)
    for replica in replicas:
        assert replica.attribute.__wrapped__.__self__ is replica.attribute.args[0] is replica[0]


def test_a_weak_reference_keeps_its_callback():
    _, replicas = replicas_of(attribute=lambda module: ref(module[0], print))
    for replica in replicas:
        assert replica.attribute() is replica[0]
        assert replica.attribute.__callback__ is print
