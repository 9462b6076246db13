"""impl._inputs: leaves that are split or copied, constants, nesting, packed sequences."""

import dataclasses
from collections import UserDict
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.rnn import pack_sequence, unpack_sequence

from impl import SplitAlong, Whole
from impl._containers import Constant, FieldsBranch, cat_packed, count_sequences, split_packed
from impl._inputs import InputLeaves, remove_markers
from impl_tests.samples import FakeNamedTuple


@dataclasses.dataclass
class Record:
    first: Any
    second: Any = None


@dataclasses.dataclass
class Falsy:
    content: Any

    def __len__(self):
        return 0


@pytest.fixture
def leaves():
    return InputLeaves()


def test_markers_are_removed_at_every_level():
    x, y, packed = torch.ones(2), torch.ones(1, 2), pack_sequence([torch.ones(2)])
    [first], named = remove_markers(([Whole(x)], {"y": SplitAlong(y, 1), "p": packed}))
    assert (first is x, named["y"] is y, named["p"].data is packed.data) == (True, True, True)


def test_remove_markers_returns_a_value_without_markers_uncopied():
    inputs = {"x": [torch.ones(2), "text"]}
    assert remove_markers(inputs) is inputs


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (torch.ones(2), torch.tensor(1.0)),
        (Whole(torch.tensor(1.0)), None),
        (Whole(1), None),
        (torch.ones(2), None),
    ],
    ids=["split and copied", "marked tensor", "marked value", "split"],
)
def test_dataclass_with_tensors_or_markers_is_flattened(leaves, first, second):
    assert isinstance(leaves.flatten(Record(first, second), 0, "x"), FieldsBranch)


def test_dataclass_without_tensors_and_markers_is_a_constant(leaves):
    leaves.flatten(torch.ones(2), 0, "x")
    value = Record("text", [1])
    node = leaves.flatten(value, 0, "x")
    assert isinstance(node, Constant)
    assert node.value is value


@dataclasses.dataclass(eq=False)
class Layer(nn.Module):
    weight: torch.Tensor

    def __post_init__(self):
        super().__init__()


def test_module_that_is_a_dataclass_is_a_constant(leaves):
    layer = Layer(torch.ones(2))
    node = leaves.flatten([layer], 0, "x").children[0]
    assert isinstance(node, Constant)
    assert node.value is layer


def test_dataclass_that_occurs_twice_is_flattened_twice(leaves):
    record = Record(torch.ones(2))
    nodes = leaves.flatten([record, record], 0, "x").children
    assert [type(node) for node in nodes] == [FieldsBranch, FieldsBranch]


def test_dataclass_that_is_falsy_is_flattened(leaves):
    assert isinstance(leaves.flatten(Falsy(torch.ones(2)), 0, "x"), FieldsBranch)


def test_packed_sequence_marked_whole_is_copied(leaves):
    leaves.flatten(Whole(pack_sequence([torch.ones(3, 2)])), 0, "x")
    assert (len(leaves.copied), leaves.splits) == (1, [])


def test_named_tuple_with_more_members_than_fields_raises(leaves):
    with pytest.raises(ValueError, match="longer"):
        leaves.flatten(FakeNamedTuple([1, 2]), 0, "x")


def chain(length, value):
    """Return ``length`` nested dataclasses that all hold ``value``."""
    record = Record(value)
    for _ in range(length - 1):
        record = Record(value, record)
    return record


def test_long_chain_of_dataclasses_without_tensors_is_a_constant(leaves):
    value = chain(20_000, "text")
    node = leaves.flatten([value], 0, "x").children[0]
    assert isinstance(node, Constant)
    assert node.value is value


def test_long_chain_of_shared_dataclasses_is_a_constant_at_once(leaves):
    # If an inner instance became a constant, the second reference to it would be followed, too:
    # the number of steps would be 2 ** 1000.
    value = Record("text")
    for _ in range(20_000):
        value = Record(value, value)
    assert isinstance(leaves.flatten(value, 0, "x"), Constant)


def test_long_chain_of_dataclasses_with_tensors_raises_recursion_error(leaves):
    with pytest.raises(RecursionError):
        leaves.flatten(chain(20_000, torch.ones(2)), 0, "x")


class Failing(UserDict):
    """A mapping whose iteration raises an error."""

    def __init__(self, error):
        super().__init__()
        self.error = error

    def items(self):
        raise self.error


def test_mapping_that_cannot_be_iterated_over_is_a_constant(leaves):
    value = Failing(ValueError("missing"))
    node = leaves.flatten(value, 0, "x")
    assert isinstance(node, Constant)
    assert node.value is value


def test_out_of_memory_error_of_a_mapping_is_propagated(leaves):
    with pytest.raises(torch.OutOfMemoryError):
        leaves.flatten(Failing(torch.OutOfMemoryError()), 0, "x")


def test_mapping_that_contains_itself_keeps_the_inner_reference(leaves):
    value = UserDict(x=torch.ones(2))
    value["self"] = value
    node = leaves.flatten(value, 0, "x")
    (found,) = node.unflatten(1, {leaves.splits[0]: [None]})
    assert dict(found) == {"x": None, "self": value}


class Layers(nn.Module, Mapping):
    """A module that is a mapping."""

    def __getitem__(self, key):
        return self._buffers[key]

    def __iter__(self):
        return iter(self._buffers)

    def __len__(self):
        return len(self._buffers)


def test_module_that_is_a_mapping_is_a_constant(leaves):
    module = Layers()
    module.register_buffer("x", torch.ones(2))
    assert isinstance(leaves.flatten(module, 0, "x"), Constant)


lengths = st.lists(st.integers(1, 5), min_size=1, max_size=8)


def packed(lengths, *, is_sorted):
    """Return a packed sequence and its sequences; each row is (number of the sequence, step)."""
    ordered = sorted(lengths, reverse=True) if is_sorted else lengths
    sequences = [
        torch.stack([torch.full((length,), float(number)), torch.arange(float(length))], 1)
        for number, length in enumerate(ordered)
    ]
    return pack_sequence(sequences, enforce_sorted=is_sorted), sequences


def cut(value, sizes):
    rows, counts, chunks = split_packed(value, sizes)
    pairs = zip(chunks, rows.split(counts), strict=True)
    return [chunk.with_data(data) for chunk, data in pairs]


@given(first=lengths, second=lengths)
def test_joined_packed_sequences_keep_the_order_of_sequences(first, second):
    values = [packed(lengths, is_sorted=True) for lengths in (first, second)]
    chunks = [value for value, _ in values]
    found = cat_packed(chunks, torch.cat([chunk.data for chunk in chunks]))
    expected = [sequence.tolist() for _, sequences in values for sequence in sequences]
    assert [sequence.tolist() for sequence in unpack_sequence(found)] == expected
    assert (found.sorted_indices is None) == (min(first) >= max(second))


def test_joined_sequences_on_the_cpu_ignore_the_default_device(topology):
    value, _ = packed([2, 3, 1], is_sorted=False)
    with torch.device(topology.device(0)):
        chunks = cut(value, [2, 1])
        found = cat_packed(chunks, torch.cat([chunk.data for chunk in chunks]))
    assert found.data.device.type == "cpu"


def test_packed_sequence_can_be_split_into_an_empty_chunk():
    value, _ = packed([2, 1], is_sorted=True)
    empty, whole = cut(value, [0, 2])
    assert [count_sequences(empty), count_sequences(whole)] == [0, 2]
    found = cat_packed([empty, whole], torch.cat([empty.data, whole.data]))
    assert torch.equal(found.data, value.data)


def test_sequences_of_equal_length_keep_their_order():
    values = [packed([2] * 20, is_sorted=True)[0] for _ in range(2)]
    found = cat_packed(values, torch.cat([value.data for value in values]))
    assert [sequence[0, 0].item() for sequence in unpack_sequence(found)] == [*range(20)] * 2
    assert found.sorted_indices is None
