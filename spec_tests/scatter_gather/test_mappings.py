"""Mappings that the reference rebuilds wrongly, does not split or does not refuse: SG-11."""

from collections import ChainMap, UserDict
from collections.abc import Mapping
from types import MappingProxyType

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_tests import checks
from spec_tests.machine.clauses import clause
from spec_tests.strategies.small_modules import Calls
from spec_tests.strategies.stateful_containers import MAPPINGS
from spec_tests.strategies.tensors import device_slots

EVERY_MAPPING = pytest.mark.parametrize("kind", MAPPINGS, ids="{0.__name__}".format)


def metadata(mapping):
    """Return the class, the default factory and the attributes of a mapping."""
    attributes = getattr(mapping, "__dict__", {})
    return type(mapping), getattr(mapping, "default_factory", None), dict(attributes)


def listed(value):
    """Return the elements of a tensor as a list, and any other value as it is."""
    return value.tolist() if isinstance(value, torch.Tensor) else value


@clause("divergences.SG-11.scattered-mappings-are-complete")
@EVERY_MAPPING
@given(slots=device_slots())
def test_a_scattered_mapping_keeps_its_class_order_and_attributes(target, topology, kind, slots):
    tensor = torch.arange(len(slots)).to(topology.device(0))
    mapping = kind(b=tensor, a=3)
    found = target.scatter_gather.scatter([mapping], topology.take(slots))
    checks.same([metadata(result) for [result] in found], [metadata(mapping)] * len(slots))
    members = [(list(result), listed(result["b"]), result["a"]) for [result] in found]
    checks.same(members, [(["b", "a"], [index], 3) for index in range(len(slots))], slots)


@clause("divergences.SG-11.gathered-mappings-are-complete")
@EVERY_MAPPING
@given(slots=device_slots())
def test_a_gathered_mapping_keeps_its_class_order_and_attributes(target, topology, kind, slots):
    outputs = [kind(b=torch.ones(1, device=device), a=None) for device in topology.take(slots)]
    found = target.scatter_gather.gather(outputs, topology.device(0))
    checks.same(metadata(found), metadata(outputs[0]), slots)
    checks.same([*found, len(found["b"]), found["a"]], ["b", "a", len(slots), None], slots)


class Table(Mapping):
    """A mapping whose class is called with a dict."""

    def __init__(self, items):
        self._items = dict(items)

    def __getitem__(self, key):
        return self._items[key]

    def __iter__(self):
        return iter(self._items)

    def __len__(self):
        return len(self._items)


class Rows(Table):
    """A mapping whose class takes other arguments than a dict."""

    def __init__(self, rows, device):
        super().__init__({"rows": torch.ones(rows, device=device)})


class Sized(Table):
    """A mapping whose class takes a size, and is empty at first."""

    def __init__(self, size):
        super().__init__({})
        self.size = size


class Encoding(UserDict):
    """A UserDict with an attribute, like the encodings of transformers."""

    def __init__(self, data=None, count=0):
        super().__init__(data)
        self.count = count


def sized(rows, device):
    """Return a `Sized` with a tensor."""
    table = Sized(rows)
    table._items["rows"] = torch.ones(rows, device=device)
    return table


EVERY_KIND = pytest.mark.parametrize(
    "kind",
    [UserDict, ChainMap, MappingProxyType, Table, Encoding],
    ids=["UserDict", "ChainMap", "MappingProxyType", "custom", "subclass"],
)


@clause("divergences.SG-11.other-mappings-are-split")
@EVERY_KIND
@given(slots=device_slots())
def test_the_tensors_of_other_mappings_are_split(target, topology, kind, slots):
    tensor = torch.arange(len(slots)).to(topology.device(0))
    mapping = kind({"x": [tensor], "name": "text", "inner": kind({"x": tensor})})
    found = target.scatter_gather.scatter([mapping], topology.take(slots))
    checks.same([type(chunk) for [chunk] in found], [kind] * len(slots), slots)
    members = [
        (chunk["x"][0].tolist(), chunk["name"], chunk["inner"]["x"].tolist()) for [chunk] in found
    ]
    checks.same(members, [([row], "text", [row]) for row in range(len(slots))], slots)


@clause("divergences.SG-11.other-mappings-are-split")
@given(count=st.integers(), slots=device_slots())
def test_a_user_dict_keeps_its_attributes(target, topology, count, slots):
    tensor = torch.arange(len(slots)).to(topology.device(0))
    encoding = Encoding({"x": tensor}, count)
    found = target.scatter_gather.scatter([encoding], topology.take(slots))
    members = [(chunk["x"].tolist(), chunk.count) for [chunk] in found]
    checks.same(members, [([row], count) for row in range(len(slots))], slots)


@clause("divergences.SG-11.other-mappings-are-split")
@EVERY_KIND
def test_each_row_of_a_mapping_is_computed_once(target, topology, kind):
    batch = kind({"x": torch.arange(6.0).to(topology.device(0))})
    module = Calls(lambda _, batch: 2 * batch["x"])
    wrapper = target.data_parallel.DataParallel(module, topology.take((0, 1)))
    checks.same(wrapper(batch).tolist(), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0], kind)


@clause("divergences.SG-11.mappings-that-cannot-be-rebuilt-are-refused")
@pytest.mark.parametrize("kind", [Rows, sized], ids=["arguments", "size"])
@given(slots=device_slots())
def test_a_mapping_that_cannot_be_rebuilt_is_refused_by_its_path(target, topology, kind, slots):
    inputs = [{"batch": kind(4, topology.device(0))}]
    with pytest.raises(TypeError, match=r"inputs\[0\]\['batch'\]"):
        target.scatter_gather.scatter(inputs, topology.take(slots))
