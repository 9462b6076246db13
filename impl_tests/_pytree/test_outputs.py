"""impl._pytree.containers and outputs: containers, and outputs that do not fit."""

import dataclasses
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from impl._pytree.containers import is_dataclass_instance, is_named_tuple
from impl._pytree.inputs import InputLeaves
from impl._pytree.outputs import OutputLeaves
from impl.scatter_gather import gather
from impl_tests.samples import Misnamed, Pair


class Triple(NamedTuple):
    left: Any
    right: Any
    third: Any


@dataclasses.dataclass
class Point:
    left: int


class Hiding(dict):
    """A dictionary that shows none of its items."""

    def items(self):
        return ()


class Subscripted:
    """Answers every subscript, so that it never ends as a sequence."""

    def __getitem__(self, key):
        return key


class Members:
    """Has members by index alone, as sequences of Python 1 had.

    Args:
        members: What it has.
    """

    def __init__(self, members):
        self.members = list(members)

    def __getitem__(self, index):
        return self.members[index]

    def __len__(self):
        return len(self.members)


class MuteError(Exception):
    """Cannot be printed."""

    def __str__(self):
        raise SystemExit("mute")


class Uniterable(list):
    """Iterating over it fails with an error that cannot be printed."""

    def __iter__(self):
        raise MuteError


class Fields(tuple):
    _fields = ()


class AsDict(tuple):
    _asdict = dict


class Sized:
    """Has a length, but no members."""

    def __len__(self):
        return 2


def joined(*values):
    return OutputLeaves().flatten(values, "output").unflatten(1, {})[0]


@pytest.mark.parametrize("make", [Subscripted, Sized])
def test_what_is_half_a_sequence_is_one_value(make):
    values = [make(), make()]
    assert joined(*values) == values


@pytest.mark.parametrize(
    "value",
    [SimpleNamespace(_fields=(), _asdict=dict), SimpleNamespace(), (), Fields(), AsDict()],
    ids=["no tuple", "nothing", "tuple", "_fields", "_asdict"],
)
def test_only_a_tuple_with_named_fields_is_a_named_tuple(value):
    assert not is_named_tuple(value)


def test_an_instance_of_a_dataclass_is_told_from_the_class():
    assert is_dataclass_instance(Point(1))
    assert not is_dataclass_instance(Point)


def test_members_by_index_alone_are_joined():
    found = joined(Members([1, "a"]), Members([2, "b"]))
    assert type(found) is Members
    assert found.members == [[1, 2], ["a", "b"]]


def test_arrays_are_values_and_stand_beside_each_other():
    values = [np.ones(2), np.zeros(3)]
    assert joined(*values) == values


def test_sets_of_tensors_are_joined_in_their_order():
    outputs = OutputLeaves()
    outputs.flatten([{torch.ones(1)}, {torch.zeros(1)}], "output")
    assert [each.tensors for each in outputs.gathered] == [(torch.ones(1), torch.zeros(1))]


@pytest.mark.parametrize(
    "values",
    [
        (Pair(1, 2), Triple(1, 2, 3)),
        (Triple(1, 2, 3), Pair(1, 2)),
        (Misnamed([1, 2]), Misnamed([3, 4])),
        ((1, 2), (3,)),
        ([1], [2, 3]),
    ],
    ids=["longer", "shorter", "misnamed", "tuples", "lists"],
)
def test_sequences_of_other_lengths_are_refused(values):
    with pytest.raises(ValueError, match="argument 2"):
        joined(*values)


def test_a_mapping_that_hides_items_is_refused():
    leaves = InputLeaves()
    root = leaves.flatten(Hiding(a=torch.ones(1)), 0, "x")
    with pytest.raises(ValueError, match="argument 2"):
        root.unflatten(1, {leaf: [leaf.value] for leaf in leaves.splits})


def test_leaves_with_different_numbers_of_pieces_are_refused():
    leaves = InputLeaves()
    root = leaves.flatten([torch.ones(1), torch.ones(1)], 0, "x")
    pieces = {leaf: [leaf.value] * count for count, leaf in enumerate(leaves.splits, 1)}
    with pytest.raises(ValueError, match="argument 2"):
        root.unflatten(1, pieces)


def test_a_tensor_of_a_subclass_is_joined():
    outputs = OutputLeaves()
    outputs.flatten([torch.nn.Parameter(torch.ones(1)) for _ in range(2)], "output")
    assert len(outputs.gathered) == 1


class Scarce:
    """An iterable for which no memory is left: when it is iterated over, or built of parts."""

    error: BaseException = MemoryError()

    def __init__(self, parts, is_first=False):
        if not is_first and parts:
            raise self.error
        self.parts = parts

    def __iter__(self):
        if not self.parts:
            raise self.error
        return iter(self.parts)


@pytest.mark.parametrize("parts", [[], [torch.ones(1)]], ids=["iterated", "built"])
@pytest.mark.parametrize("error", [MemoryError("m"), torch.OutOfMemoryError("m")])
def test_an_iterable_without_memory_is_not_listed(monkeypatch, error, parts):
    monkeypatch.setattr(Scarce, "error", error)
    values = [Scarce(parts, is_first=True) for _ in range(2)]
    with pytest.raises(type(error), match=r"^m$"):
        gather(values, "cpu")


def test_a_warning_names_an_error_that_cannot_be_printed():
    outputs = [Uniterable(), Uniterable()]
    with pytest.warns(UserWarning, match=r"Uniterable .*MuteError: <exception str\(\) failed>"):
        assert gather(outputs, "cpu") == outputs
