"""With module_attributes a wrapper reads the attributes of its module: DP-8."""

import copy
import inspect
import pickle

import pytest
import torch
from torch import nn

from spec_tests.harness.compare import checks
from spec_tests.harness.conformance.clauses import clause

CLAUSE = clause("divergences.DP-8.attributes-of-the-module")


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
        """The number of features."""
        return self.layer.in_features

    def name_of(self, index):
        """Return the name of a class."""
        return self.classes[index]

    def forward(self, x):
        """Return the scores."""
        return self.layer(x) * self.scale

    def __deepcopy__(self, memo):
        """Return a copy."""
        return copy.copy(self)


class WithProperty(nn.Module):
    """The property of a subclass of a wrapper. It raises an AttributeError."""

    @property
    def broken(self):
        """Raise an error."""
        raise AttributeError("broken")


def wrap(target, topology, kind=None):
    kind = kind or target.data_parallel.DataParallel
    module = Classifier().to(topology.device(0))
    return kind(module, topology.take(2), module_attributes=True)


@CLAUSE
@pytest.mark.parametrize(
    "duplicate",
    [lambda wrapper: wrapper, copy.copy, lambda wrapper: pickle.loads(pickle.dumps(wrapper))],
    ids=["itself", "copy", "pickle"],
)
def test_public_names_are_read_from_the_module(target, topology, duplicate):
    wrapper = duplicate(wrap(target, topology))
    found = wrapper.classes, wrapper.width, wrapper.name_of(1), hasattr(wrapper, "missing")
    checks.same(found, (("cat", "dog"), 3, "dog", False))
    assert wrapper.layer is wrapper.module.layer
    assert wrapper.scale is wrapper.module.scale


@CLAUSE
def test_state_and_outputs_are_those_of_a_wrapper_without_the_option(target, topology):
    wrapper = wrap(target, topology)
    plain = target.data_parallel.DataParallel(wrapper.module, topology.take(2))
    x = torch.ones(5, 3, device=topology.device(0))
    checks.same(list(wrapper.state_dict()), list(plain.state_dict()))
    checks.same(wrapper(x), plain(x))


@CLAUSE
def test_reference_has_no_argument_for_attributes(reference):
    kind = reference.data_parallel.DataParallel
    assert "module_attributes" not in inspect.signature(kind).parameters


@CLAUSE
def test_assignments_stay_on_the_wrapper(target, topology):
    wrapper = wrap(target, topology)
    wrapper.classes = ()
    checks.same((wrapper.classes, wrapper.module.classes), ((), ("cat", "dog")))


@CLAUSE
@pytest.mark.parametrize("name", ["device_ids", "dim", "src_device_obj"])
def test_own_attributes_are_not_read_from_the_module(target, topology, name):
    wrapper = wrap(target, topology)
    assert getattr(wrapper, name) != "of the module"
    delattr(wrapper, name)  # They are missing without an accelerator.
    assert not hasattr(wrapper, name)


@CLAUSE
def test_error_of_a_property_of_the_wrapper_is_raised(target, topology):
    kind = type("Parallel", (WithProperty, target.data_parallel.DataParallel), {})
    assert not hasattr(wrap(target, topology, kind), "broken")


@CLAUSE
def test_private_names_are_not_read_from_the_module(target, topology):
    wrapper = wrap(target, topology)
    assert not hasattr(wrapper, "_private")
    assert type(copy.deepcopy(wrapper)) is type(wrapper)


@CLAUSE
def test_wrapper_without_a_module_raises_an_attribute_error(target):
    kind = target.data_parallel.DataParallel
    wrapper = kind(nn.Identity(), module_attributes=True)
    del wrapper.module
    for empty in (wrapper, kind.__new__(kind)):
        assert not hasattr(empty, "classes")
        assert not hasattr(empty, "module")
