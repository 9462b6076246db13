"""impl.data_parallel: refused modules, options of the class, and the repr of wrappers."""

from functools import partial

import pytest
import torch
from torch import nn

from impl import DataParallel


@pytest.mark.parametrize("devices", [[0, 1], ["cpu"] * 2, ["cpu"] * 3], ids=repr)
@pytest.mark.parametrize(
    ("module", "name"),
    [
        (lambda x: x, "function"),
        (nn.functional.relu, "function"),
        (nn.Linear(2, 2).forward, "method"),
        (partial(nn.functional.relu, inplace=True), "partial"),
        (torch.compile(lambda x: x, backend="eager"), "function"),
        (nn.Linear, "the class Linear"),
        ([nn.Linear(2, 2)], "list"),
        (3, "int"),
    ],
    ids=["lambda", "function", "method", "partial", "compiled", "class", "list", "int"],
)
def test_an_object_without_parameters_is_refused_by_several_devices(module, name, devices):
    with pytest.raises(TypeError, match=f"module must be a Module, not {name}"):
        DataParallel(module, devices)


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({}, ""),
        ({"output_device": "cpu"}, ""),
        ({"dim": 1}, ", dim=1"),
        ({"chunk_sizes": [1, 2], "in_turn": True}, ", chunk_sizes=[1, 2], in_turn=True"),
    ],
    ids=repr,
)
def test_repr_shows_the_devices_and_arguments_that_are_not_the_defaults(options, shown):
    wrapper = DataParallel(nn.Identity(), ["cpu", "cpu"], **options)
    devices = "device_ids=[device(type='cpu'), device(type='cpu')]"
    assert wrapper.extra_repr() == devices + shown
    assert f"  {devices}{shown}\n" in repr(wrapper)


def test_repr_shows_another_output_device(topology):
    ordinal = topology.device(0).index
    wrapper = DataParallel(nn.Identity(), [ordinal] * 2, "cpu")
    assert f"[{ordinal}, {ordinal}], output_device=device(type='cpu')" in wrapper.extra_repr()


@pytest.mark.usefixtures("no_devices")
def test_repr_of_a_wrapper_without_devices_is_complete():
    assert DataParallel(nn.Identity(), dim=1).extra_repr() == "device_ids=[]"


OPTIONS = ["in_turn", "scalar_warning", "module_attributes", "cache_frozen_parameters"]


@pytest.mark.parametrize("option", OPTIONS)
def test_an_argument_overrides_the_attribute_of_the_class(option, monkeypatch):
    value = not getattr(DataParallel, option)
    monkeypatch.setattr(DataParallel, option, value)
    for options, expected in ({}, value), ({option: not value}, not value):
        wrapper = DataParallel(nn.Identity(), ["cpu", "cpu"], **options)
        assert getattr(wrapper, option) is expected
