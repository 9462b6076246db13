"""impl._attributes: classes that refuse calls, and attributes that refer to their container.

``spec_tests/scatter_gather/test_attributes.py`` tests the rule itself.
"""

from collections import UserDict
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence, unpack_sequence

from impl import DataParallel, SplitAlong, Whole, gather, scatter
from impl._attributes import is_same
from spec_tests.strategies.small_modules import Calls

ROWS = torch.arange(14.0).view(7, 2)
CPUS = ["cpu"] * 2


class Items(dict):
    """A dictionary that may have attributes."""


class Even(dict):
    def __init__(self, items):
        super().__init__(items)
        if len(self["x"]) % 2:
            raise ValueError("odd")
        self.count = 2


class Scaled(dict):
    def __getitem__(self, key):
        return super().__getitem__(key) * 2

    def __len__(self):
        return len(self["x"])


class Pairs(Mapping):
    """A mapping that is no dict, and stores its items in an object that equals no other one."""

    def __init__(self, items):
        self.store = iter(items.items()), dict(items)
        self.lock = None

    def __getitem__(self, key):
        return self.store[1][key]

    def __iter__(self):
        return iter(self.store[1])

    def __len__(self):
        return len(self.store[1])


def items(**attributes):
    result = Items(x=ROWS)
    vars(result).update(attributes)
    return result


class Renamed(UserDict):
    @property
    def data(self):
        return self.stored

    @data.setter
    def data(self, value):
        self.stored = value


def with_note(value):
    value.note = "changed"
    return value


BUILDS = {
    "refuses odd rows": lambda rows: Even({"x": rows[:6]}),
    "doubles what is read": lambda rows: Scaled(x=rows),
    "attributes cannot be compared": lambda rows: with_note(Pairs({"x": rows})),
    "items under another name": lambda rows: with_note(Renamed(x=rows)),
}


@pytest.mark.parametrize("build", BUILDS.values(), ids=BUILDS)
def test_a_container_is_split_and_joined_by_its_items(build):
    value = build(ROWS)
    chunks = scatter(value, CPUS)
    assert {*map(type, chunks)} == {type(value)}
    joined = gather(chunks, "cpu")
    for found in (torch.cat([chunk["x"] for chunk in chunks]), joined["x"]):
        assert torch.equal(found, value["x"])
    assert getattr(joined, "note", None) == getattr(value, "note", None)


def test_an_attribute_that_is_an_item_is_the_same_chunk():
    value = items(alias=ROWS)
    for chunk in scatter(value, CPUS):
        assert chunk.alias is chunk["x"]
    joined = gather(scatter(value, CPUS), "cpu")
    assert joined.alias is joined["x"]


def test_attributes_may_refer_to_containers_that_contain_them():
    parent = [items(), items()]
    for child in parent:
        child.parent, child.me, child.peers = parent, child, [child, parent[0]]
    chunks = scatter(parent, CPUS)
    assert [[len(child["x"]) for child in chunk] for chunk in chunks] == [[4, 4], [3, 3]]
    for chunk in chunks:
        assert all(child.me is child for child in chunk)
    joined = gather(scatter(parent, CPUS), "cpu")
    assert [child["x"].tolist() for child in joined] == [ROWS.tolist()] * 2


def test_a_list_in_an_attribute_may_contain_itself():
    endless = [1]
    endless.append(endless)
    chunks = scatter(items(endless=endless), CPUS)
    assert all(chunk.endless[1] is endless for chunk in chunks)


@pytest.mark.parametrize(
    "attribute",
    [torch.ones(3), torch.ones(()), torch.eye(7).to_sparse(), Items(), object(), nn.Linear(1, 1)],
    ids=["other-size", "scalar", "sparse", "empty", "object", "module"],
)
def test_an_attribute_without_rows_reaches_each_replica_whole(attribute):
    for chunk in scatter(items(kept=attribute), CPUS):
        assert chunk.kept is attribute or torch.equal(chunk.kept.to_dense(), attribute.to_dense())
    assert scatter(items(kept=attribute), CPUS, 1)[0]["x"].shape == (7, 1)


@pytest.mark.parametrize(
    "attribute", [torch.ones(7), torch.eye(7).to_sparse()], ids=["one-dimension", "sparse"]
)
def test_an_attribute_that_cannot_be_split_is_copied_to_the_devices(topology, attribute):
    devices = topology.take(2)
    chunks = scatter(items(kept=attribute.to(devices[0])), devices, 1)
    assert [chunk.kept.device for chunk in chunks] == devices


@pytest.mark.parametrize(("count", "counts"), [(7, [4, 3]), (5, [5, 5])])
def test_a_packed_sequence_in_an_attribute_is_split_if_it_has_the_rows(count, counts):
    packed = pack_sequence([torch.full((2,), float(row)) for row in range(count)])
    chunks = scatter(items(prompts=packed, table=torch.ones(5)), CPUS)
    found = [unpack_sequence(chunk.prompts) for chunk in chunks]
    assert [*map(len, found)] == counts
    assert found[1][-1].tolist() == [count - 1.0] * 2
    assert [len(chunk.table) for chunk in chunks] == [5, 5]


@dataclass
class WithTable:
    x: torch.Tensor
    table: torch.Tensor = field(init=False)


def test_a_field_that_the_constructor_does_not_take_is_an_attribute():
    value = WithTable(ROWS)
    value.table = torch.arange(6)
    assert [chunk.table.tolist() for chunk in scatter(value, CPUS)] == [[*range(6)]] * 2


def test_tensors_of_markers_in_attributes_are_copied_or_split():
    value = items(whole=Whole(ROWS), columns=SplitAlong(ROWS, 1))
    for chunk in scatter(value, CPUS):
        assert torch.equal(chunk.whole, ROWS)
        assert chunk.columns.shape == (7, 1)
    assert all(torch.equal(each.whole, ROWS) for each in scatter(Whole(items(whole=ROWS)), CPUS))


def test_an_attribute_of_one_replica_only_is_refused_by_its_path():
    outputs = scatter(items(), CPUS)
    outputs[1].extra = outputs[1]["x"]
    with pytest.raises(ValueError, match=r"output.extra is None in replicas \[0\]"):
        gather(outputs, "cpu")


def test_a_scalar_with_a_gradient_in_an_attribute_is_joined():
    outputs = scatter(items(), CPUS)
    for output in outputs:
        output.loss = output["x"].requires_grad_().sum()
    with pytest.warns(UserWarning, match="scalars"):
        found = gather(outputs, "cpu")
    assert found.loss.tolist() == [ROWS[:4].sum(), ROWS[4:].sum()]


def weigh(_, batch):
    """Return an output with an attribute. Read an attribute of the input."""
    output = UserDict(y=batch.weight * batch["x"])
    output.total = output["y"].sum(1)
    return output


@pytest.mark.parametrize("device_ids", [CPUS, [0, 1], [0, 0]])
def test_attributes_of_inputs_and_outputs_have_gradients(topology, device_ids):
    devices = ["cpu"] * 2 if device_ids is CPUS else topology.take(device_ids)
    weight = ROWS.to(devices[0]).clone().requires_grad_()
    batch = Items(x=ROWS.to(devices[0]))
    batch.weight = weight
    steps = []
    for module in (Calls(weigh), DataParallel(Calls(weigh), devices)):
        found = module(batch)
        (gradient,) = torch.autograd.grad(found.total.square().sum(), [weight])
        steps.append([found["y"].tolist(), found.total.tolist(), gradient.tolist()])
    assert steps[0] == steps[1]


class Weighted(dict):
    def __init__(self, items):
        super().__init__(items)
        self.weight = torch.ones(len(self["x"]), 1)


def weigh_output(gate, x):
    """Return an output whose weights are not those of its class, but have equal values."""
    output = Weighted({"x": x})
    output.weight = gate.scale.expand(len(x), 1)
    return output


def test_attributes_that_require_grad_are_not_made_anew():
    batch = Weighted({"x": ROWS})
    batch.weight.requires_grad_()
    gate = Calls(weigh_output, scale=nn.Parameter(torch.ones(1)))
    output = DataParallel(gate, CPUS)(batch["x"])
    output.weight.sum().backward()
    assert gate.scale.grad == 7
    multiply = Calls(lambda _, value: value["x"] * value.weight)
    DataParallel(multiply, CPUS)(batch).sum().backward()
    assert batch.weight.grad.equal(ROWS.sum(1, keepdim=True))


@dataclass
class Made:
    """A dataclass that makes an attribute from a tensor and another field."""

    x: torch.Tensor
    other: object

    def __post_init__(self):
        if isinstance(self.other, tuple):
            self.made = self.x[:, slice(*self.other)]
        elif isinstance(self.other, bool | list):  # Flags of replicas become a list.
            self.made = self.x if self.other else -self.x
        else:
            self.made = self.other * self.x


FIELDS = {"flag": False, "tuple": (0, 1), "number": 3.0, "scalar": torch.tensor(3.0)}


@pytest.mark.filterwarnings("ignore:Was asked to gather along dimension 0")
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("other", FIELDS.values(), ids=FIELDS)
def test_attributes_that_are_made_from_items_without_rows_are_joined(other, count):
    found = DataParallel(Calls(lambda _, x: Made(x, other)), ["cpu"] * count)(ROWS)
    assert found.made.equal(Made(ROWS, other).made)


class Halves(dict):
    """A dictionary that refuses more than four rows, and makes half of them."""

    def __init__(self, items):
        dict.__init__(self, items)
        assert len(self["x"]) <= 4
        self.half = self["x"] / 2


MEMBERS = {"__slots__": ("half",), "__init__": Halves.__init__}
SlottedHalves = type("SlottedHalves", (dict,), MEMBERS)


@pytest.mark.parametrize("kind", [Halves, SlottedHalves])
def test_tensors_that_the_class_cannot_make_anew_are_dropped(kind):
    joined = gather([kind({"x": chunk}) for chunk in ROWS.split(4)], "cpu")
    assert joined["x"].equal(ROWS)
    assert not hasattr(joined, "half")


class DoubledPairs(Pairs):
    def __init__(self, items):
        super().__init__({key: 2 * value for key, value in items.items()})


def test_a_mapping_whose_class_changes_the_items_is_refused():
    value = DoubledPairs({"x": ROWS})
    with pytest.raises(TypeError, match=r"inputs: a DoubledPairs with tensors cannot be rebuilt"):
        scatter(value, CPUS)
    with pytest.raises(TypeError, match=r"DoubledPairs, called with .* has other items"):
        gather([value, value], "cpu")


def add(step):
    return lambda value: value + step


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (torch.tensor([1.0, torch.nan]), torch.tensor([1.0, torch.nan]), True),
        (torch.ones(1), torch.ones(2), False),
        (torch.ones(2), torch.ones(2).double(), False),
        (torch.ones(2), torch.ones(2, requires_grad=True), False),
        ([ROWS, {"a": {1}}], [ROWS.clone(), {"a": {1}}], True),
        ({"a": 1, "b": 2}, {"a": 1}, False),
        (5, 0, False),
        (1, True, False),
        (add(1), add(1), True),
        (add(1), add(2), False),
        (items(n=1), items(n=1), True),
        (object(), Items(), False),
    ],
)
def test_two_values_are_the_same_if_all_parts_are_equal(first, second, expected):
    assert is_same(first, second) is expected
