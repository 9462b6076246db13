"""impl._pytree.packed_sequence: splitting and joining of packed sequences."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.utils.rnn import pack_sequence, unpack_sequence

from impl._pytree.packed_sequence import cat_packed, count_sequences, split_packed

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
