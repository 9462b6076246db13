"""impl._pytree.packed_sequence: packed sequences cut by sequence and joined again."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.utils.rnn import pack_sequence, unpack_sequence

from impl._pytree.packed_sequence import cat_packed, count_sequences, split_packed

lengths = st.lists(st.integers(1, 5), min_size=1, max_size=8)
parts = st.integers(1, 4)


def packed(lengths, *, is_sorted):
    """Sequences whose rows say which sequence and which step they are."""
    ordered = sorted(lengths, reverse=True) if is_sorted else lengths
    sequences = [
        torch.stack([torch.full((length,), float(at)), torch.arange(float(length))], 1)
        for at, length in enumerate(ordered)
    ]
    return pack_sequence(sequences, enforce_sorted=is_sorted), sequences


def cut(value, sizes):
    rows, counts, chunks = split_packed(value, sizes)
    pairs = zip(chunks, rows.split(counts), strict=True)
    return [chunk.with_data(data) for chunk, data in pairs]


def sizes_of(count, parts):
    return [len(chunk) for chunk in torch.empty(count).chunk(parts)]


@given(lengths=lengths, parts=parts, is_sorted=st.booleans())
def test_chunks_hold_consecutive_sequences(lengths, parts, is_sorted):
    value, sequences = packed(lengths, is_sorted=is_sorted)
    chunks = cut(value, sizes_of(len(lengths), parts))
    found = [sequence.tolist() for chunk in chunks for sequence in unpack_sequence(chunk)]
    assert found == [sequence.tolist() for sequence in sequences]


@given(lengths=lengths, parts=parts, is_sorted=st.booleans())
def test_joining_the_chunks_gives_the_value_back(lengths, parts, is_sorted):
    value, _ = packed(lengths, is_sorted=is_sorted)
    chunks = cut(value, sizes_of(len(lengths), parts))
    found = cat_packed(chunks, torch.cat([chunk.data for chunk in chunks]))
    for part, expected in zip(found, value, strict=True):
        assert (part is None) == (expected is None)
        assert part is None or torch.equal(part, expected)


@given(first=lengths, second=lengths)
def test_sorted_parts_that_do_not_follow_on_are_sorted_anew(first, second):
    values = [packed(each, is_sorted=True) for each in (first, second)]
    chunks = [value for value, _ in values]
    found = cat_packed(chunks, torch.cat([chunk.data for chunk in chunks]))
    expected = [sequence.tolist() for _, sequences in values for sequence in sequences]
    assert [sequence.tolist() for sequence in unpack_sequence(found)] == expected
    assert (found.sorted_indices is None) == (min(first) >= max(second))


def test_gradients_of_the_chunks_reach_the_rows():
    value, _ = packed([2, 3, 1], is_sorted=False)
    value.data.requires_grad_()
    first, second = cut(value, [1, 2])
    (first.data.sum() + 2 * second.data.sum()).backward()
    assert value.data.grad[:, 0].tolist() == [2.0 if row != 0 else 1.0 for row in value.data[:, 0]]


def test_the_default_device_is_not_asked(topology):
    value, _ = packed([2, 3, 1], is_sorted=False)
    with torch.device(topology.device(0)):
        chunks = cut(value, [2, 1])
        found = cat_packed(chunks, torch.cat([chunk.data for chunk in chunks]))
    assert found.data.device.type == "cpu"


def test_a_chunk_without_sequences_counts_none():
    value, _ = packed([2, 1], is_sorted=True)
    empty, whole = cut(value, [0, 2])
    assert [count_sequences(empty), count_sequences(whole)] == [0, 2]
    found = cat_packed([empty, whole], torch.cat([empty.data, whole.data]))
    assert torch.equal(found.data, value.data)


def test_many_sequences_of_one_length_keep_their_order():
    values = [packed([2] * 20, is_sorted=True)[0] for _ in range(2)]
    found = cat_packed(values, torch.cat([value.data for value in values]))
    assert [sequence[0, 0].item() for sequence in unpack_sequence(found)] == [*range(20)] * 2
    assert found.sorted_indices is None
