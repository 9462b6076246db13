"""impl._comm.chunk_sizes: how many rows each device gets."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from impl._comm.chunk_sizes import check_weights, chunk_lengths

counts = st.integers(1, 9)
weights = st.lists(st.sampled_from([1, 2, 0.5, 0.1, 7, 0]), min_size=1, max_size=6).filter(any)


@given(extent=st.integers(0, 60), count=counts)
def test_equal_chunks_are_those_of_torch(extent, count):
    chunks = torch.empty(extent).chunk(count)
    assert chunk_lengths(extent, count) == [len(chunk) for chunk in chunks]


@given(extent=st.integers(0, 60), shares=weights)
def test_every_row_is_dealt_out_once(extent, shares):
    lengths = chunk_lengths(extent, len(shares), shares)
    assert sum(lengths) == extent
    assert min(lengths) >= 0
    assert len(lengths) <= len(shares)


@given(sizes=st.lists(st.integers(0, 9), min_size=1, max_size=6).filter(any))
def test_shares_that_sum_to_the_extent_are_the_sizes(sizes):
    lengths = chunk_lengths(sum(sizes), len(sizes), sizes)
    padded = lengths + [0] * (len(sizes) - len(lengths))
    assert padded == sizes


@given(extent=st.integers(1, 60), shares=weights)
def test_no_device_with_a_share_goes_empty_before_rows_run_out(extent, shares):
    lengths = chunk_lengths(extent, len(shares), shares)
    pairs = zip(lengths, shares, strict=False)
    assert all((length > 0) == (share > 0) for length, share in pairs)


@given(extent=st.integers(1, 60), shares=weights)
def test_a_share_is_rounded_up_at_most(extent, shares):
    lengths = chunk_lengths(extent, len(shares), shares)
    exact = [extent * share / sum(shares) for share in shares]
    assert all(
        length <= math.ceil(share - 1e-6) for length, share in zip(lengths, exact, strict=False)
    )


def test_a_whole_share_is_not_rounded_up_by_a_rounding_error():
    assert chunk_lengths(10, 3, [0.1, 0.2, 0.7]) == [1, 2, 7]


def test_no_rows_still_make_a_chunk_for_each_device():
    assert chunk_lengths(0, 3) == chunk_lengths(0, 3, [1, 0, 2]) == [0, 0, 0]


@pytest.mark.parametrize(
    ("shares", "text"),
    [
        ([1], "1 chunk sizes for 2 devices"),
        ([1, -1], "negative or infinite chunk size in [1, -1]"),
        ([1, math.inf], "negative or infinite chunk size in [1, inf]"),
        ([1, math.nan], "negative or infinite chunk size in [1, nan]"),
        ([0, 0], "every chunk size is 0 in [0, 0]"),
    ],
    ids=["too-few", "negative", "infinite", "no-number", "all-zero"],
)
def test_shares_by_which_nothing_can_be_dealt_are_refused(shares, text):
    with pytest.raises(ValueError) as raised:
        check_weights(shares, 2)
    assert str(raised.value) == text
