"""Calls that only CUDA or only the CPU supports: sim behaves as CUDA does."""

import numpy
import pytest
import torch

pytestmark = pytest.mark.usefixtures("sim")

DEVICE = "sim:2"
INTEGERS = ("uint8", "int8", "int16", "int32", "int64")


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize(("bins", "low", "high"), [(8, 0, 7), (3, 0, 7), (5, 2, 6), (100, 0, 100)])
def test_histc_of_integers_agrees_with_numpy(dtype, bins, low, high):
    x = torch.randint(0, 101, (200,), generator=torch.Generator().manual_seed(0))
    counts = torch.histc(x.to(getattr(torch, dtype)).to(DEVICE), bins, low, high)
    in_range = [int(v) for v in x if low <= v <= high]
    bin_of = [min((v - low) * bins // (high - low), bins - 1) for v in in_range]
    assert (str(counts.device), counts.dtype) == (DEVICE, getattr(torch, dtype))
    assert counts.tolist() == numpy.bincount(bin_of, minlength=bins).tolist()


def test_histc_replaces_equal_bounds_by_minimum_and_maximum():
    x = torch.tensor([3, 9, 3, 6], device=DEVICE)
    assert torch.histc(x, 3).tolist() == [2, 1, 1]
    assert torch.histc(x[:1], 2).tolist() == [0, 1]
    assert torch.histc(x[:0], 2).tolist() == [0, 0]


def test_histc_of_integers_writes_to_out():
    out = torch.empty(0, dtype=torch.int64, device=DEVICE)
    assert torch.histc(torch.tensor([0, 1, 1], device=DEVICE), 2, 0, 1, out=out) is out
    assert out.tolist() == [1, 2]


@pytest.mark.parametrize(("bins", "low", "high"), [(0, 0, 1), (2, 3, 1)])
def test_histc_rejects_zero_bins_and_reversed_bounds(bins, low, high):
    with pytest.raises(RuntimeError, match=r"bins must be > 0|max must be larger than min"):
        torch.histc(torch.tensor([0, 1], device=DEVICE), bins, low, high)


@pytest.mark.parametrize("sections", [3, [1, 4]])
def test_tensor_split_takes_sections_on_the_cpu_only(sections):
    x = torch.arange(10.0, device=DEVICE, requires_grad=True)
    pieces = torch.tensor_split(x, torch.tensor(sections))
    want = torch.tensor_split(torch.arange(10.0), torch.tensor(sections))
    assert [piece.tolist() for piece in pieces] == [piece.tolist() for piece in want]
    assert {str(piece.device) for piece in pieces} == {DEVICE}
    with pytest.raises(RuntimeError, match="tensor_indices_or_sections to be on cpu"):
        torch.tensor_split(x, torch.tensor(sections, device=DEVICE))
