"""impl._pytree.containers, _arguments and _outputs: nested values taken apart and built again."""

import collections
import dataclasses
from collections.abc import MutableMapping
from typing import Any

import pytest
import torch

from impl._pytree.containers import Constant, MappingBranch, format_path
from impl._pytree.inputs import InputLeaves, remove_markers
from impl._pytree.markers import SplitAlong, Whole
from impl._pytree.outputs import OutputLeaves
from impl_tests.samples import Pair


class Noted(dict):
    """A dictionary with an attribute, whose class cannot be called with pairs."""

    def __init__(self, *, note):
        self.note = note


class Frozen(dict):
    """A dictionary that can only be built from pairs."""

    def __setitem__(self, key, value):
        raise TypeError("frozen")

    def __reduce__(self):
        return Frozen, (), None, None, iter(self.items())


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    value: Any


@dataclasses.dataclass(frozen=True)
class Record:
    value: Any
    count: int = dataclasses.field(default=1, init=False)
    missing: Any = dataclasses.field(init=False)


@dataclasses.dataclass
class Knot:
    value: Any
    itself: Any = None


@pytest.fixture
def tensor():
    return torch.arange(4.0)


def rebuilt(value):
    """Take ``value`` apart and build one other, its tensors negated."""
    leaves = InputLeaves()
    root = leaves.flatten(value, None, "value")
    return root.unflatten(1, {leaf: [-leaf.tensor] for leaf in leaves.copied})[0]


def trails(value):
    leaves = InputLeaves()
    leaves.flatten(value, 0, "args")
    return [format_path(split.path) for split in leaves.splits]


def test_trails_are_written_as_python_would(tensor):
    value = ({"a": [tensor, Pair(0, tensor)]}, {3: Record(tensor)})
    expected = ["args[0]['a'][0]", "args[0]['a'][1].right", "args[1][3].value"]
    assert trails(value) == expected


@pytest.mark.parametrize(
    "build",
    [
        lambda part: (part,),
        lambda part: [part],
        lambda part: {"a": part},
        lambda part: Pair(part, 3),
        lambda part: collections.OrderedDict(a=part),
        lambda part: collections.defaultdict(list, a=part),
        lambda part: Frozen({"a": part}),
        lambda part: Knot(part),
        lambda part: Slotted(part),
    ],
    ids=["tuple", "list", "dict", "named", "ordered", "default", "frozen", "data", "slots"],
)
def test_containers_keep_their_kind(build, tensor):
    value = build(tensor)
    found = rebuilt(value)
    assert type(found) is type(value)
    assert found is not value
    assert str(found) == str(build(-tensor))
    assert str(value) == str(build(tensor))


def test_an_ordered_dictionary_keeps_its_attributes(tensor):
    noted = collections.OrderedDict(a=tensor)
    noted.note = "n"
    assert rebuilt(noted).note == "n"


def test_a_mapping_keeps_attributes_factory_and_order(tensor):
    noted = Noted(note="n")
    noted.update(b=tensor, a=1)
    factory = rebuilt(collections.defaultdict(list, x=tensor))
    found = rebuilt(noted)
    assert (found.note, list(found)) == ("n", ["b", "a"])
    assert factory["new"] == []


def test_a_dataclass_is_copied_past_its_constructor(tensor):
    value = Record(tensor)
    found = rebuilt(value)
    assert found.value.tolist() == (-tensor).tolist()
    assert found.count == 1
    assert not hasattr(found, "missing")
    assert value.value is tensor


def test_a_dataclass_without_tensors_stays_itself():
    value = Knot([1, 2])
    assert rebuilt((value,))[0] is value


def test_a_dataclass_that_holds_itself_ends(tensor):
    value = Knot(tensor)
    value.itself = value
    found = rebuilt(value)
    assert found is not value
    assert found.itself is value


def test_the_inner_marker_counts(tensor):
    leaves = InputLeaves()
    leaves.flatten(SplitAlong([tensor, Whole((tensor, SplitAlong(tensor, -1)))], 0), 7, "args")
    assert [split.dim for split in leaves.splits] == [0, -1]
    assert len(leaves.copied) == 1


def test_markers_are_taken_off(tensor):
    marked = {"a": Whole([tensor]), "b": SplitAlong(3, 1)}
    found = remove_markers(marked)
    assert found["a"][0] is tensor
    assert found["b"] == 3
    plain = [tensor]
    assert remove_markers(plain) is plain


def test_no_value_refers_back_to_what_took_it_apart(tensor):
    leaves = InputLeaves()
    root = leaves.flatten(([tensor], {"a": Knot(tensor)}), None, "args")
    pieces = {leaf: [leaf.tensor, leaf.tensor] for leaf in leaves.copied}
    first, second = root.unflatten(2, pieces)
    assert first[0] is not second[0]
    assert first[1] is not second[1]


@pytest.mark.parametrize(
    ("values", "what", "ones", "others"),
    [
        ([{"a": [None]}, {"a": [1]}], "output['a'][0] is None", [0], [1]),
        ([(1,), (torch.ones(1),), (2,)], "output[0] is a tensor", [1], [0, 2]),
        ([Pair(1, torch.ones(1)), Pair(2, None)], "output.right is None", [1], [0]),
    ],
    ids=["none", "tensor", "both"],
)
def test_odd_replicas_are_named(values, what, ones, others):
    with pytest.raises(ValueError) as raised:
        OutputLeaves().flatten(values, "output")
    assert str(raised.value) == f"{what} in replicas {ones}, but not in replicas {others}"


@pytest.mark.parametrize(
    "values",
    [
        ["a", ""],
        [1, 2.5],
        [b"x", b"y"],
        [range(2), range(3)],
        [torch.Size([1]), torch.Size([2])],
        [{1}, {2}],
        [iter("ab"), iter("cd")],
        [torch.float32, torch.float64],
        [int, str],
    ],
    ids=["str", "numbers", "bytes", "range", "Size", "set", "iterator", "dtype", "class"],
)
def test_values_that_hold_no_outputs_stand_beside_each_other(values):
    outputs = OutputLeaves()
    assert outputs.flatten(values, "output").unflatten(1, {})[0] == values
    assert outputs.gathered == []


def test_a_custom_iterable_is_built_from_one_iterable():
    class Bag:
        def __init__(self, *args):
            (self.parts,) = map(list, args)

        def __iter__(self):
            return iter(self.parts)

    found = OutputLeaves().flatten([Bag([1, "a"]), Bag([2, "b"])], "output").unflatten(1, {})[0]
    assert type(found) is Bag
    assert found.parts == [[1, 2], ["a", "b"]]


class Shelf(MutableMapping):
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


def test_a_mapping_that_shares_what_it_holds_with_its_copy_is_not_written_to():
    shelf = Shelf({"x": 1})
    built = MappingBranch(shelf, [Constant(2)]).unflatten(2, {})
    assert [each.content for each in built] == [{"x": 2}, {"x": 2}]
    assert shelf.content == {"x": 1}
