"""impl._diagnostics: notes of frequent errors, and warnings of calls of the original.

A replica calls a module of the original through an object that refers to it, such as a closure.
"""

from collections import UserDict, UserList
from functools import partial
from types import MappingProxyType, MethodType, SimpleNamespace
from weakref import WeakSet

import pytest
import torch
from torch import nn
from torch.distributions import Normal

import impl
from impl import DataParallel
from spec_tests.strategies.small_modules import Calls

CPUS = ["cpu", "cpu"]


@pytest.mark.parametrize("in_turn", [False, True], ids="in_turn={}".format)
def test_error_of_batch_norm_has_a_note_with_the_shape_of_the_chunk(in_turn):
    wrapper = DataParallel(nn.BatchNorm1d(2), CPUS, in_turn=in_turn)
    with pytest.raises(ValueError, match="in replica 1 on device cpu") as caught:
        wrapper(torch.randn(3, 2))
    (note,) = caught.value.__notes__
    assert note.startswith("Replica 1 got a tensor of shape (1, 2).")
    assert note not in str(caught.value)


@pytest.mark.parametrize("call", ["wrapper", "replicate"])
def test_a_replica_that_is_replicated_from_another_device_is_refused_with_a_note(topology, call):
    devices = topology.take(2)
    topology.require(distinct=2)

    class Replicating(nn.Linear):
        def forward(self, x):
            return impl.replicate(self, devices)[0].extra_repr()

    module = Replicating(2, 2) if call == "replicate" else DataParallel(nn.Linear(2, 2), devices)
    with pytest.raises(RuntimeError, match="in replica 1 on device") as caught:
        DataParallel(module.to(devices[0]), devices)(torch.ones(2, 2))
    assert caught.value.__notes__[-1].startswith(f"Replica 1 and its tensors are on {devices[1]}.")


def test_another_value_error_of_a_replica_has_no_note():
    wrapper = DataParallel(nn.BatchNorm1d(2), CPUS)
    with pytest.raises(ValueError, match="expected 2D or 3D input") as caught:
        wrapper(torch.randn(3))
    assert not hasattr(caught.value, "__notes__")


def freeze(module, x):
    module.weight.requires_grad = False


def load(module, x):
    module.load_state_dict(module.state_dict(), assign=True)


def sum_bags(module, x):
    return nn.functional.embedding_bag(x.flatten().long(), module.weight, x[:, 0].long())


@pytest.mark.parametrize(
    ("forward", "text"),
    [
        (freeze, "outside of the forward"),
        (load, "pass nn.Parameter values"),
        (lambda module, x: module.get_parameter("weight") * x, "Read them as attributes"),
        (sum_bags, "pass a matrix with one bag"),
    ],
)
def test_other_frequent_errors_have_a_note(forward, text):
    wrapper = DataParallel(type("Module", (nn.Linear,), {"forward": forward})(2, 2), CPUS)
    with pytest.raises((AttributeError, RuntimeError, ValueError)) as caught:
        wrapper(torch.ones(4, 2))
    assert text in caught.value.__notes__[-1]


def calls_held(make):
    layer = nn.Linear(2, 2)
    return Calls(lambda module, x: module.held(x), layer=layer, held=make(layer))


class Helper:
    def __init__(self, layer):
        self.layer = layer

    def __call__(self, x):
        return self.layer(x)


def closure(layer):
    return lambda x: layer(x)


def wrapped_closure(layer):
    old = layer.forward

    def call(x):
        return closure(old)(x)

    return call


def method_with_a_closure(layer):
    old = layer.forward
    return MethodType(lambda module, x: old(x), layer)


@pytest.mark.filterwarnings("ignore:The function")
@pytest.mark.parametrize("make", [closure, wrapped_closure, method_with_a_closure, Helper])
def test_a_device_error_names_the_attribute_that_holds_the_original(topology, make):
    topology.require(distinct=2)
    devices = topology.take(2)
    wrapper = impl.DataParallel(calls_held(make).to(devices[0]), devices)
    with pytest.raises(RuntimeError) as caught:
        wrapper(torch.ones(4, 2, device=devices[0]))
    (note,) = caught.value.__notes__
    assert note.startswith(
        f"Attribute 'held' of the module holds Linear, which is not the copy on {devices[1]}"
    )
    assert "types.MethodType" in note


#: Functions that make an object that holds a tensor, and that read the tensor.
HOLDERS = {
    "tensor": (lambda t: t, lambda held: held),
    "list": (lambda t: [1, t], lambda held: held[1]),
    "dictionary": (lambda t: {"key": [t]}, lambda held: held["key"][0]),
    "tuple": (lambda t: (t,), lambda held: held[0]),
    "distribution": (lambda t: Normal(t, t), lambda held: held.mean),
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_a_device_error_names_the_attribute_that_holds_a_tensor(topology, holder):
    topology.require(distinct=2)
    devices = topology.take(2)
    make, read = HOLDERS[holder]
    held = make(torch.ones(2, device=devices[0]))
    module = Calls(lambda module, x: x + read(module.held), held=held)
    with pytest.raises(RuntimeError) as caught:
        impl.DataParallel(module, devices)(torch.ones(4, 2, device=devices[0]))
    (note,) = caught.value.__notes__
    assert note.startswith(f"Attribute 'held' of the module holds a tensor on {devices[0]}")
    assert "register_buffer" in note


def test_a_device_error_names_an_argument_that_is_a_module(topology):
    topology.require(distinct=2)
    devices = topology.take(2)
    wrapper = impl.DataParallel(Calls(lambda _, x, layer: layer(x)), devices)
    with pytest.raises(RuntimeError) as caught:
        wrapper(torch.ones(4, 2, device=devices[0]), nn.Linear(2, 2).to(devices[0]))
    (note,) = caught.value.__notes__
    assert note.startswith("An argument holds Linear")


def test_cpu_replicas_warn_of_a_hook_that_is_a_closure():
    module = Calls(lambda module, x: module.layer(x), layer=nn.Linear(2, 2))
    module.layer.register_forward_hook(lambda *args: setattr(module, "kept", args[-1]))
    with pytest.warns(UserWarning, match="refers to Calls"):
        impl.DataParallel(module, CPUS)(torch.ones(2, 2))


class Slots:
    __slots__ = ("layer",)

    def __init__(self, layer):
        self.layer = layer


@pytest.mark.parametrize(
    "make",
    [
        *(lambda layer: SimpleNamespace(x=[layer]), Slots, lambda layer: UserDict(a=layer)),
        *(lambda layer: MappingProxyType({"a": layer}), lambda layer: WeakSet([layer])),
        *(lambda layer: Slots(layer.forward), lambda layer: UserList([closure(layer)])),
        *(lambda layer: [layer, Slots(layer)], lambda layer: {"a": [1, (Slots(layer),)]}),
        *(lambda layer: [closure(layer)], lambda layer: partial(print, Slots(layer))),
        *(closure, method_with_a_closure, lambda layer: partial(closure(layer))),
    ],
)
def test_cpu_replicas_warn_once_of_an_object_or_closure_with_a_module_of_the_tree(make):
    layer = nn.Linear(2, 2)
    members = {"layer": layer, "first": make(layer), "other": make(nn.Linear(2, 2))}
    wrapper = impl.DataParallel(Calls(lambda module, x: module.layer(x), **members), CPUS)
    with pytest.warns(UserWarning, match="refers to Linear") as warned:
        wrapper(torch.ones(2, 2))
    assert [each.filename for each in warned] == [__file__]
    wrapper(torch.ones(2, 2))  # A second warning would be an error.


def test_cpu_replicas_do_not_warn_of_objects_that_a_forward_does_not_call():
    class Initialized(nn.Linear):
        def __init__(self):
            super().__init__(2, 2)
            self.handles = [self.register_forward_pre_hook(self.initialize)]
            self.register_load_state_dict_pre_hook(self.rename)

        def initialize(self, *_):
            self.handles[0].remove()

        @staticmethod
        def rename(*_):
            pass

    impl.DataParallel(Initialized(), CPUS)(torch.ones(2, 2))  # A warning would be an error.


@pytest.mark.parametrize(
    "function", [torch.tanh, lambda x: x, closure(nn.functional.relu), nn.Linear(2, 2).forward]
)
def test_other_functions_stay_the_same_object_without_a_warning(function):
    module = calls_held(lambda layer: function)
    for replica in impl.replicate(module, CPUS, with_parameters=True):
        assert replica.held is module.held
