"""impl._chunks: the number of rows of each chunk."""

from hypothesis import given
from hypothesis import strategies as st

from impl._chunks import chunk_lengths


@given(sizes=st.lists(st.integers(0, 9), min_size=1, max_size=6).filter(any))
def test_weights_that_sum_to_the_extent_are_the_lengths(sizes):
    lengths = chunk_lengths(sum(sizes), len(sizes), sizes)
    padded = lengths + [0] * (len(sizes) - len(lengths))
    assert padded == sizes
