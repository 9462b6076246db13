"""impl._inputs: leaves, constants, markers, and errors of mappings."""

import dataclasses
from collections import UserDict
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence
from torch.testing._internal.two_tensor import TwoTensor

from impl import SplitAlong, Whole, gather, scatter
from impl._containers import Constant
from impl._inputs import InputLeaves, remove_markers


@dataclasses.dataclass
class Record:
    first: Any
    second: Any = None


def test_markers_are_removed_at_every_level():
    x, y, packed = torch.ones(2), torch.ones(1, 2), pack_sequence([torch.ones(2)])
    [first], named = remove_markers(([Whole(x)], {"y": SplitAlong(y, 1), "p": packed}))
    assert (first is x, named["y"] is y, named["p"].data is packed.data) == (True, True, True)


def test_remove_markers_returns_a_value_without_markers_uncopied():
    inputs = {"x": [torch.ones(2), "text"]}
    assert remove_markers(inputs) is inputs


@dataclasses.dataclass(eq=False)
class Layer(nn.Module):
    weight: torch.Tensor

    def __post_init__(self):
        super().__init__()


def chain(length, value):
    record = Record(value)
    for _ in range(length - 1):
        record = Record(value, record)
    return record


@pytest.mark.parametrize(
    "value", [Layer(torch.ones(2)), chain(20_000, "text")], ids=["module", "long chain"]
)
def test_a_module_and_a_chain_of_dataclasses_without_tensors_are_constants(value):
    node = InputLeaves().flatten([value], 0, "x").children[0]
    assert isinstance(node, Constant)
    assert node.value is value


def test_long_chain_of_shared_dataclasses_is_a_constant_at_once():
    # If an inner instance became a constant, the second reference to it would be followed, too:
    # the number of steps would be 2 ** 1000.
    value = Record("text")
    for _ in range(20_000):
        value = Record(value, value)
    assert isinstance(InputLeaves().flatten(value, 0, "x"), Constant)


def test_long_chain_of_dataclasses_with_tensors_raises_recursion_error():
    with pytest.raises(RecursionError):
        InputLeaves().flatten(chain(20_000, torch.ones(2)), 0, "x")


class Failing(UserDict):
    def __init__(self, error):
        super().__init__()
        self.error = error

    def items(self):
        raise self.error


def test_out_of_memory_error_of_a_mapping_is_propagated():
    with pytest.raises(torch.OutOfMemoryError):
        InputLeaves().flatten(Failing(torch.OutOfMemoryError()), 0, "x")


def negated(value):
    leaves = InputLeaves()
    root = leaves.flatten(value, None, "value")
    return root.unflatten(1, {leaf: [-leaf.tensor] for leaf in leaves.copied})[0]


def test_reference_of_a_dataclass_to_itself_is_kept():
    value = Record(torch.arange(4.0))
    value.second = value
    found = negated(value)
    assert found is not value
    assert found.second is value


def test_rows_of_a_wrapper_class_in_a_packed_sequence_are_split_and_joined():
    rows = torch.arange(5.0)
    packed = PackedSequence(TwoTensor(rows, rows + 10), torch.tensor([3, 2]))
    chunks = scatter(packed, ["cpu", "cpu"])
    assert [chunk.data.a.tolist() for chunk in chunks] == [[0.0, 1.0, 3.0, 4.0], [2.0]]
    assert [chunk.data.b.tolist() for chunk in chunks] == [[10.0, 11.0, 13.0, 14.0], [12.0]]
    joined = gather(chunks, "cpu")
    assert (joined.data.a.tolist(), joined.data.b.tolist()) == ([*rows], [*rows + 10])


def test_outputs_of_a_wrapper_class_with_other_dimensions_are_refused():
    outputs = [TwoTensor(torch.ones(shape), torch.ones(shape)) for shape in ((0,), (2, 2))]
    with pytest.raises(RuntimeError, match="index 1 has 2 dimensions"):
        gather(outputs, "cpu")
