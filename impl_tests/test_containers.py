"""impl._containers: flattening and unflattening of nested values, and markers."""

import dataclasses
from collections.abc import MutableMapping
from typing import Any

import pytest
import torch

from impl import SplitAlong, Whole
from impl._containers import Constant, MappingBranch, format_path
from impl._inputs import InputLeaves
from impl_tests.samples import Pair


class ReadOnly(dict):
    """A dictionary without item assignment, whose copies are built from pairs."""

    def __setitem__(self, key, value):
        raise TypeError("read-only")

    def __reduce__(self):
        return ReadOnly, (), None, None, iter(self.items())


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    value: Any


@dataclasses.dataclass(frozen=True)
class Record:
    value: Any
    count: int = dataclasses.field(default=1, init=False)
    missing: Any = dataclasses.field(init=False)


@dataclasses.dataclass
class SelfReferring:
    value: Any
    reference: Any = None


@pytest.fixture
def tensor():
    return torch.arange(4.0)


def negated(value):
    """Flatten ``value`` and unflatten it with negated tensors."""
    leaves = InputLeaves()
    root = leaves.flatten(value, None, "value")
    return root.unflatten(1, {leaf: [-leaf.tensor] for leaf in leaves.copied})[0]


def paths(value):
    leaves = InputLeaves()
    leaves.flatten(value, 0, "args")
    return [format_path(split.path) for split in leaves.splits]


def test_paths_are_written_as_python_expressions(tensor):
    value = ({"a": [tensor, Pair(0, tensor)]}, {3: Record(tensor)})
    expected = ["args[0]['a'][0]", "args[0]['a'][1].right", "args[1][3].value"]
    assert paths(value) == expected


@pytest.mark.parametrize(
    "build",
    [
        lambda tensor: Pair(tensor, 3),
        lambda tensor: ReadOnly({"a": tensor}),
        lambda tensor: SelfReferring(tensor),
        lambda tensor: Slotted(tensor),
    ],
    ids=["named tuple", "read-only dict", "dataclass", "dataclass with slots"],
)
def test_containers_keep_their_class(build, tensor):
    value = build(tensor)
    found = negated(value)
    assert type(found) is type(value)
    assert found is not value
    assert str(found) == str(build(-tensor))
    assert str(value) == str(build(tensor))


def test_reference_of_a_dataclass_to_itself_is_kept(tensor):
    value = SelfReferring(tensor)
    value.reference = value
    found = negated(value)
    assert found is not value
    assert found.reference is value


class SharedMapping(MutableMapping):
    """A mapping whose shallow copy writes to the same dictionary."""

    def __init__(self, content):
        self.content = dict(content)

    def __getitem__(self, key):
        return self.content[key]

    def __setitem__(self, key, value):
        self.content[key] = value

    def __delitem__(self, key):
        del self.content[key]

    def __iter__(self):
        return iter(self.content)

    def __len__(self):
        return len(self.content)


def test_unflattening_keeps_the_original_of_a_mapping_whose_shallow_copy_shares_its_dict():
    template = SharedMapping({"x": 1})
    built = MappingBranch(template, [Constant(2)]).unflatten(2, {})
    assert [mapping.content for mapping in built] == [{"x": 2}, {"x": 2}]
    assert template.content == {"x": 1}


BOTH = pytest.mark.parametrize(
    "make", [lambda: Whole([1]), lambda: SplitAlong([1], 0)], ids=["Whole", "SplitAlong"]
)


@BOTH
def test_marker_equals_only_itself(make):
    marker = make()
    assert marker == marker
    assert marker != make()
    assert len({marker, make()}) == 2


@BOTH
def test_marker_attribute_cannot_be_assigned(make):
    with pytest.raises(dataclasses.FrozenInstanceError):
        make().value = None


@BOTH
def test_marker_has_no_dictionary(make):
    assert not hasattr(make(), "__dict__")
