"""impl._outputs: recognition of containers, and outputs that cannot be joined."""

import dataclasses

import numpy as np
import pytest
import torch

from impl._containers import is_dataclass_instance
from impl._inputs import InputLeaves
from impl._outputs import OutputLeaves
from impl.scatter_gather import gather


@dataclasses.dataclass
class Point:
    left: int


class HiddenItems(dict):
    """A dictionary with an empty ``items()``."""

    def items(self):
        return ()


class Subscripted:
    """An object without ``__len__`` whose ``__getitem__`` accepts every key."""

    def __getitem__(self, key):
        return key


class IndexedSequence:
    """A sequence with ``__getitem__`` and ``__len__`` only."""

    def __init__(self, members):
        self.members = list(members)

    def __getitem__(self, index):
        return self.members[index]

    def __len__(self):
        return len(self.members)


class UnprintableError(Exception):
    """An exception whose ``__str__`` raises SystemExit."""

    def __str__(self):
        raise SystemExit("unprintable")


class Uniterable(list):
    """A list whose iteration raises an error that cannot be printed."""

    def __iter__(self):
        raise UnprintableError


class Sized:
    """An object with ``__len__``, but without ``__getitem__``."""

    def __len__(self):
        return 2


def gathered(*values):
    return OutputLeaves().flatten(values, "output").unflatten(1, {})[0]


@pytest.mark.parametrize(
    "values",
    [
        [b"x", b"y"],
        [torch.Size([1]), torch.Size([2])],
        [{1}, {2}],
        [iter("ab"), iter("cd")],
        [int, str],
        [np.ones(2), np.zeros(3)],
        [Subscripted(), Subscripted()],
        [Sized(), Sized()],
    ],
    ids=lambda values: type(values[0]).__name__,
)
def test_values_without_tensors_are_gathered_into_a_list(values):
    assert gathered(*values) == values


def test_is_dataclass_instance_is_false_for_a_dataclass_type():
    assert is_dataclass_instance(Point(1))
    assert not is_dataclass_instance(Point)


def test_members_of_indexed_sequences_are_gathered():
    found = gathered(IndexedSequence([1, "a"]), IndexedSequence([2, "b"]))
    assert type(found) is IndexedSequence
    assert found.members == [[1, 2], ["a", "b"]]


def test_tensors_of_sets_are_gathered_in_iteration_order():
    outputs = OutputLeaves()
    outputs.flatten([{torch.ones(1)}, {torch.zeros(1)}], "output")
    assert [leaf.tensors for leaf in outputs.gathered] == [(torch.ones(1), torch.zeros(1))]


def test_mapping_whose_items_method_omits_keys_raises():
    leaves = InputLeaves()
    root = leaves.flatten(HiddenItems(a=torch.ones(1)), 0, "x")
    with pytest.raises(ValueError, match="argument 2"):
        root.unflatten(1, {leaf: [leaf.value] for leaf in leaves.splits})


def test_unflattening_leaves_with_different_numbers_of_chunks_raises():
    leaves = InputLeaves()
    root = leaves.flatten([torch.ones(1), torch.ones(1)], 0, "x")
    pieces = {leaf: [leaf.value] * count for count, leaf in enumerate(leaves.splits, 1)}
    with pytest.raises(ValueError, match="argument 2"):
        root.unflatten(1, pieces)


class OutOfMemory:
    """An iterable that raises ``error`` on iteration if it is empty, else when a copy is built."""

    error: BaseException = MemoryError()

    def __init__(self, parts, is_original=False):
        if not is_original and parts:
            raise self.error
        self.parts = parts

    def __iter__(self):
        if not self.parts:
            raise self.error
        return iter(self.parts)


@pytest.mark.parametrize("parts", [[], [torch.ones(1)]], ids=["iterated", "built"])
@pytest.mark.parametrize("error", [MemoryError("m"), torch.OutOfMemoryError("m")])
def test_out_of_memory_error_of_an_iterable_is_propagated(monkeypatch, error, parts):
    monkeypatch.setattr(OutOfMemory, "error", error)
    values = [OutOfMemory(parts, is_original=True) for _ in range(2)]
    with pytest.raises(type(error)) as caught:
        gather(values, "cpu")
    assert str(caught.value) == "m"


def test_warning_has_the_type_of_an_error_that_cannot_be_printed():
    outputs = [Uniterable(), Uniterable()]
    with pytest.warns(
        UserWarning, match=r"Uniterable .*UnprintableError: <exception str\(\) failed>"
    ):
        assert gather(outputs, "cpu") == outputs


def test_tensors_of_two_classes_are_one_leaf():
    values = (torch.ones(1), torch.nn.Parameter(torch.ones(1)))
    leaves = OutputLeaves()
    leaves.flatten(values, "output")
    assert [leaf.tensors for leaf in leaves.gathered] == [values]
