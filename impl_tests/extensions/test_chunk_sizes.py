"""impl: chunks of given sizes, in proportion to weights, and of one row per device."""

import math
import re

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.rnn import pack_sequence

import impl
from spec_tests import checks
from spec_tests.strategies.small_modules import Calls

SIZE_LISTS = st.lists(st.integers(1, 4), min_size=1, max_size=4)


@given(
    rows=st.integers(0, 40),
    weights=st.lists(st.integers(1, 4) | st.just(1e-12), min_size=1, max_size=4),
    factor=st.sampled_from([1, 0.25, 1000]),
)
@example(rows=8, weights=[3, 1], factor=1)
@example(rows=7, weights=[1e-12, 1], factor=1)
def test_rows_are_split_in_proportion_to_weights(topology, rows, weights, factor):
    tensor = torch.arange(rows).to(topology.device(0))
    devices = topology.take(len(weights))
    scaled = [weight * factor for weight in weights]
    found = impl.scatter([tensor], devices, chunk_sizes=scaled)
    lengths = [len(chunk) for [chunk] in found]
    checks.same([row for [chunk] in found for row in chunk.tolist()], list(range(rows)), weights)
    exact = [rows * weight / sum(weights) for weight in weights]
    differences = [length - share for length, share in zip(lengths, exact, strict=False)]
    assert max(map(abs, differences)) < len(weights), f"{rows} rows, weights {weights}: {lengths}"
    assert 0 not in lengths or rows == 0, f"{rows} rows, weights {weights}: {lengths}"


@given(sizes=SIZE_LISTS, factor=st.sampled_from([1, 0.1, 1 / 3, 1000]))
@example(sizes=[3, 1], factor=1)
@example(sizes=[1, 2, 7], factor=0.1)
def test_chunks_in_whole_proportions_are_exact(topology, sizes, factor):
    tensor = torch.arange(sum(sizes)).to(topology.device(0))
    scaled = [size * factor for size in sizes]
    found = impl.scatter([tensor], topology.take(len(sizes)), chunk_sizes=scaled)
    checks.same([len(chunk) for [chunk] in found], sizes, factor)


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        ((1,), "1 chunk sizes for 2 devices"),
        ((1, -1), "negative or infinite chunk size in [1, -1]"),
        ((1, math.inf), "negative or infinite chunk size in [1, inf]"),
        ((1, math.nan), "negative or infinite chunk size in [1, nan]"),
        ((0, 0), "every chunk size is 0 in [0, 0]"),
    ],
    ids=["too-few", "negative", "infinite", "no-number", "all-zero"],
)
def test_invalid_chunk_sizes_are_refused(topology, sizes, text):
    tensor = torch.arange(4).to(topology.device(0))
    with pytest.raises(ValueError, match=re.escape(text)):
        impl.scatter(tensor, topology.take(2), chunk_sizes=sizes)
    with pytest.raises(ValueError, match=re.escape(text)):
        impl.DataParallel(nn.ReLU(), topology.take(2), chunk_sizes=sizes)


def count_rows():
    """Return a module that returns the number of its rows, times a weight, in every row."""
    weight = nn.Parameter(torch.ones(2))
    return Calls(lambda module, x: torch.full_like(x, len(x)) * module.weight, weight=weight)


@given(sizes=st.permutations([0, 0.0, 1, 2]).map(lambda sizes: sizes[:3]))
def test_data_parallel_refuses_zeros(topology, sizes):
    refused = pytest.raises(ValueError, match=r"chunk size 0 in .* Leave the device out")
    with refused:
        impl.DataParallel(count_rows(), topology.take(3), chunk_sizes=sizes)
    wrapped = impl.DataParallel(count_rows().to(topology.device(0)), topology.take(3))
    wrapped.chunk_sizes = sizes
    with refused:
        wrapped(torch.ones(6, 2))
    wrapped.chunk_sizes = 3
    with pytest.raises(TypeError) as found:
        wrapped(torch.ones(6, 2))
    assert found.value.__notes__ == ["Argument: chunk_sizes"]


@pytest.mark.usefixtures("no_devices")
@pytest.mark.parametrize("sizes", [[-1, 2], [0, 0], [0, 1]], ids=str)
def test_constructor_refuses_invalid_chunk_sizes_without_an_accelerator(sizes):
    with pytest.raises(ValueError, match=r"chunk size (is )?(0 )?in \["):
        impl.DataParallel(nn.ReLU(), [0, 1], chunk_sizes=sizes)
    with pytest.warns(UserWarning, match="device_ids is ignored"):
        wrapper = impl.DataParallel(nn.ReLU(), [0, 1], chunk_sizes=[1, 2, 3])
    assert wrapper.chunk_sizes == [1, 2, 3]


@given(sizes=st.lists(st.integers(1, 4), min_size=2, max_size=4))
@example(sizes=[3, 1])
def test_data_parallel_splits_by_its_chunk_sizes(topology, sizes):
    module, devices = count_rows().to(topology.device(0)), topology.take(len(sizes))
    wrapped = impl.DataParallel(module, devices, chunk_sizes=sizes)
    found = wrapped(torch.ones(sum(sizes), 2, device=topology.device(0)))
    checks.same(found[:, 0].tolist(), [float(n) for n in sizes for _ in range(n)], sizes)
    (gradient,) = torch.autograd.grad(found.sum(), module.parameters())
    checks.same(gradient.tolist(), [float(sum(n * n for n in sizes))] * 2, sizes)


def packed(count):
    return pack_sequence([torch.ones(1)] * count)


#: For each rule: inputs, the number of devices, the chunk sizes, and the elements of each chunk.
#: "One row per device" is a tensor with as many rows as devices, beside a batch of another size.
SPLIT = {
    "one row per device, 3:1": (
        lambda: [torch.ones(8), torch.arange(2)],
        *(2, [3, 1], [[[1] * 6, [0]], [[1] * 2, [1]]]),
    ),
    "one row per device, 1:3": (
        lambda: [torch.ones(8), torch.arange(2)],
        *(2, [1, 3], [[[1] * 2, [0]], [[1] * 6, [1]]]),
    ),
    "one row per device, 5:2": (
        lambda: [torch.ones(8), torch.arange(2)],
        *(2, [5, 2], [[[1] * 6, [0]], [[1] * 2, [1]]]),
    ),
    "only tensors with one row per device, by weight": (
        lambda: [torch.arange(3), torch.arange(3)],
        *(3, [2, 1, 0], [[[0, 1]] * 2, [[2]] * 2]),
    ),
    "packed sequences beside one row per device, by weight": (
        lambda: [packed(3), torch.arange(3)],
        *(3, [2, 1, 0], [[[1, 1], [0, 1]], [[1], [2]]]),
    ),
    "one row per device along another dimension": (
        lambda: [torch.ones(5), impl.SplitAlong(torch.arange(8).reshape(2, 4), 1)],
        *(4, None, [[[1, 1], [[0], [4]]], [[1, 1], [[1], [5]]], [[1], [[2], [6]]]]),
    ),
    "one row per device, as many as packed sequences": (
        lambda: [torch.arange(4), packed(3)],
        *(4, None, [[[0], [1]], [[1], [1]], [[2], [1]]]),
    ),
    "no row of an empty tensor": (
        lambda: [torch.ones(0), torch.ones(3)],
        *(3, None, [[[], [1]]] * 3),
    ),
}


@pytest.mark.parametrize(("inputs", "count", "sizes", "expected"), SPLIT.values(), ids=SPLIT)
def test_tensors_of_different_sizes_are_split_together(topology, inputs, count, sizes, expected):
    shares = impl.scatter(inputs(), topology.take(count), chunk_sizes=sizes)
    assert [[chunk.data.tolist() for chunk in share] for share in shares] == expected


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        (lambda: [packed(2), torch.ones(6)], r"inputs\[0\] has size 2 along dim 0 \(2 chunks\)"),
        (lambda: [packed(4), torch.ones(3)], r"inputs\[0\] has size 4 .*inputs\[1\] has size 3 "),
        # inputs[0] has one row per device, which fits every batch.
        (lambda: [*map(torch.ones, (4, 8, 2))], r"\[1\] has size 8 .*inputs\[2\] has size 2 "),
    ],
    ids=["dimension of a packed sequence", "packed sequences", "tensors"],
)
def test_error_names_the_arguments_with_different_chunk_counts(topology, inputs, text):
    with pytest.raises(ValueError, match=text):
        impl.scatter(inputs(), topology.take(4))
