"""impl._chunks: the number of rows of each chunk, and argument checks."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from impl import _chunks
from impl._chunks import check_weights, chunk_lengths


@given(sizes=st.lists(st.integers(0, 9), min_size=1, max_size=6).filter(any))
def test_weights_that_sum_to_the_extent_are_the_lengths(sizes):
    lengths = chunk_lengths(sum(sizes), len(sizes), sizes)
    padded = lengths + [0] * (len(sizes) - len(lengths))
    assert padded == sizes


def test_floating_point_error_in_weights_adds_no_row():
    assert chunk_lengths(10, 3, [0.1, 0.2, 0.7]) == [1, 2, 7]


@pytest.mark.parametrize(
    ("weights", "text"),
    [
        ([1], "1 chunk sizes for 2 devices"),
        ([1, -1], "negative or infinite chunk size in [1, -1]"),
        ([1, math.inf], "negative or infinite chunk size in [1, inf]"),
        ([1, math.nan], "negative or infinite chunk size in [1, nan]"),
        ([0, 0], "every chunk size is 0 in [0, 0]"),
    ],
    ids=["too-few", "negative", "infinite", "no-number", "all-zero"],
)
def test_invalid_weights_raise(weights, text):
    with pytest.raises(ValueError) as raised:
        check_weights(weights, 2)
    assert str(raised.value) == text


SHAPE = (2, 3, 4)


@pytest.mark.parametrize(("kind", "name"), [(None, "ACCELERATOR"), ("sim", "SIM")])
def test_error_names_the_expected_accelerator(monkeypatch, kind, name):
    monkeypatch.setattr(_chunks, "accelerator_type", lambda: kind)
    with pytest.raises(RuntimeError, match=f"input tensors to be {name} tensors, .* device 'cpu'"):
        _chunks.check_gather_inputs([torch.ones(1)], 0)


@pytest.mark.parametrize(("dim", "other"), [(0, 1), (0, 2), (1, 0), (1, 2), (2, 1)])
def test_scatter_outputs_of_wrong_extent_in_another_dimension_raise(topology, dim, other):
    wrong = [7 if index == other else extent for index, extent in enumerate(SHAPE)]
    outputs = [torch.ones(shape, device=topology.device(0)) for shape in (SHAPE, wrong)]
    with pytest.raises(RuntimeError, match="at index 1 has incorrect shape"):
        _chunks.check_scatter_outputs(torch.ones(SHAPE), outputs, dim)
