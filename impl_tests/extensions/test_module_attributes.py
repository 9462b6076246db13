"""impl._wrapped_module: a wrapper has the attributes of its module."""

import copy
import pickle

import pytest
import torch
from torch import nn

import impl
from spec_tests import checks


class Classifier(nn.Module):
    """A module with an attribute, a property, a method, a buffer and names of the wrapper."""

    classes = ("cat", "dog")
    dim = device_ids = src_device_obj = broken = _private = "of the module"

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.register_buffer("scale", torch.ones(1))

    @property
    def width(self):
        return self.layer.in_features

    def name_of(self, index):
        return self.classes[index]

    def forward(self, x):
        return self.layer(x) * self.scale

    def __deepcopy__(self, memo):
        return copy.copy(self)


class WithProperty(nn.Module):
    """The property of a subclass of a wrapper. It raises an AttributeError."""

    @property
    def broken(self):
        raise AttributeError("broken")


def wrap(topology, kind=impl.DataParallel):
    module = Classifier().to(topology.device(0))
    return kind(module, topology.take(2), module_attributes=True)


@pytest.mark.parametrize(
    "duplicate",
    [lambda wrapper: wrapper, copy.copy, lambda wrapper: pickle.loads(pickle.dumps(wrapper))],
    ids=["itself", "copy", "pickle"],
)
def test_public_names_are_read_from_the_module(topology, duplicate):
    wrapper = duplicate(wrap(topology))
    found = wrapper.classes, wrapper.width, wrapper.name_of(1), hasattr(wrapper, "missing")
    checks.same(found, (("cat", "dog"), 3, "dog", False))
    assert wrapper.layer is wrapper.module.layer
    assert wrapper.scale is wrapper.module.scale


def test_a_missing_attribute_has_a_note_with_the_ways_to_the_module(topology):
    wrapper = impl.DataParallel(Classifier().to(topology.device(0)), topology.take(2))
    with pytest.raises(AttributeError, match="no attribute 'classes'") as raised:
        _ = wrapper.classes
    (note,) = raised.value.__notes__
    assert "wrapper.module.classes" in note
    assert "wrapper.call('classes', ...)" in note


def test_state_and_outputs_are_those_of_a_wrapper_without_the_option(topology):
    wrapper = wrap(topology)
    plain = impl.DataParallel(wrapper.module, topology.take(2))
    x = torch.ones(5, 3, device=topology.device(0))
    checks.same(list(wrapper.state_dict()), list(plain.state_dict()))
    checks.same(wrapper(x), plain(x))


def test_assignments_stay_on_the_wrapper(topology):
    wrapper = wrap(topology)
    wrapper.classes = ()
    checks.same((wrapper.classes, wrapper.module.classes), ((), ("cat", "dog")))


@pytest.mark.parametrize("name", ["device_ids", "dim", "src_device_obj"])
def test_own_attributes_are_not_read_from_the_module(topology, name):
    wrapper = wrap(topology)
    assert getattr(wrapper, name) != "of the module"
    delattr(wrapper, name)  # They are missing without an accelerator.
    assert not hasattr(wrapper, name)


def test_error_of_a_property_of_the_wrapper_is_raised(topology):
    kind = type("Parallel", (WithProperty, impl.DataParallel), {})
    assert not hasattr(wrap(topology, kind), "broken")


def test_private_names_are_not_read_from_the_module(topology):
    wrapper = wrap(topology)
    assert not hasattr(wrapper, "_private")
    assert type(copy.deepcopy(wrapper)) is type(wrapper)


def test_wrapper_without_a_module_raises_an_attribute_error():
    kind = impl.DataParallel
    wrapper = kind(nn.Identity(), module_attributes=True)
    del wrapper.module
    for empty in (wrapper, kind.__new__(kind)):
        assert not hasattr(empty, "classes")
        assert not hasattr(empty, "module")
