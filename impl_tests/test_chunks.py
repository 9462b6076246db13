"""impl._chunks: the number of rows of each chunk, and argument checks."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from impl import _chunks
from impl._chunks import chunk_lengths


@given(sizes=st.lists(st.integers(0, 9), min_size=1, max_size=6).filter(any))
def test_weights_that_sum_to_the_extent_are_the_lengths(sizes):
    lengths = chunk_lengths(sum(sizes), len(sizes), sizes)
    padded = lengths + [0] * (len(sizes) - len(lengths))
    assert padded == sizes


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
