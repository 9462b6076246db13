"""impl._diagnostics: objects through which a replica calls a module of the original."""

from collections import UserDict, UserList
from functools import partial
from types import MappingProxyType, MethodType, SimpleNamespace
from weakref import WeakSet

import pytest
import torch
from torch import nn

import impl

CPU_DEVICES = ["cpu", "cpu"]


class CallsAttribute(nn.Module):
    """A module that calls its attribute ``function``, which ``make`` makes of a layer."""

    def __init__(self, make):
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.function = make(self.layer)

    def forward(self, x):
        return self.function(x)


class Helper:
    """An object that calls a layer."""

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
    wrapper = impl.DataParallel(CallsAttribute(make).to(devices[0]), devices)
    with pytest.raises(RuntimeError) as caught:
        wrapper(torch.ones(4, 2, device=devices[0]))
    (note,) = caught.value.__notes__
    assert note.startswith(
        f"Attribute 'function' of the module holds Linear, which is not the copy on {devices[1]}"
    )
    assert "types.MethodType" in note


def test_a_device_error_names_an_argument_that_is_a_module(topology):
    topology.require(distinct=2)

    class CallsArgument(nn.Module):
        def forward(self, x, layer):
            return layer(x)

    devices = topology.take(2)
    wrapper = impl.DataParallel(CallsArgument(), devices)
    with pytest.raises(RuntimeError) as caught:
        wrapper(torch.ones(4, 2, device=devices[0]), nn.Linear(2, 2).to(devices[0]))
    (note,) = caught.value.__notes__
    assert note.startswith("An argument holds Linear")


@pytest.mark.parametrize(
    "make", [closure, method_with_a_closure, lambda layer: partial(closure(layer))]
)
def test_cpu_replicas_warn_once_of_a_closure_over_a_module_of_the_tree(make):
    wrapper = impl.DataParallel(CallsAttribute(make), CPU_DEVICES)
    with pytest.warns(UserWarning, match=r"closure\.<locals>\.<lambda>.* refers to Linear"):
        wrapper(torch.ones(2, 2))
    wrapper(torch.ones(2, 2))  # A second warning would be an error.


def test_cpu_replicas_warn_of_a_hook_that_is_a_closure():
    class Keeping(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 2)
            self.layer.register_forward_hook(lambda *args: setattr(self, "kept", args[-1]))

        def forward(self, x):
            return self.layer(x)

    with pytest.warns(UserWarning, match="refers to Keeping"):
        impl.DataParallel(Keeping(), CPU_DEVICES)(torch.ones(2, 2))


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
    ],
)
def test_cpu_replicas_warn_once_of_an_object_that_refers_to_a_module_of_the_tree(make):
    class Holds(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 2)
            self.first, self.other = make(self.layer), make(nn.Linear(2, 2))

        def forward(self, x):
            return self.layer(x)

    wrapper = impl.DataParallel(Holds(), CPU_DEVICES)
    with pytest.warns(UserWarning, match="refers to Linear") as warned:
        wrapper(torch.ones(2, 2))
    assert len(warned) == 1
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

    impl.DataParallel(Initialized(), CPU_DEVICES)(torch.ones(2, 2))  # A warning would be an error.


@pytest.mark.parametrize(
    "function", [torch.tanh, lambda x: x, closure(nn.functional.relu), nn.Linear(2, 2).forward]
)
def test_other_functions_stay_the_same_object_without_a_warning(function):
    module = CallsAttribute(lambda layer: function)
    for replica in impl.replicate(module, CPU_DEVICES, with_parameters=True):
        assert replica.function is module.function
