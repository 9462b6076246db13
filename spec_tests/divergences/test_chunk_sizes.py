"""Unequal chunks, which the reference's modules cannot deal out: SG-5."""

import inspect

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn

from spec_tests.harness.compare import checks
from spec_tests.harness.conformance.clauses import clause

SIZES = clause("divergences.SG-5.chunk-sizes")
WEIGHTS = clause("divergences.SG-5.chunk-weights")
REFUSED = clause("divergences.SG-5.chunk-sizes-refused")
AT_ONCE = clause("divergences.SG-5.chunk-sizes-of-a-module-refused")
WRAPPED = clause("divergences.SG-5.chunk-sizes-of-a-module")
sizes = st.lists(st.integers(1, 4), min_size=1, max_size=4)


@SIZES
@given(sizes=sizes)
@example(sizes=[3, 1])
def test_sizes_that_add_up_are_kept(target, topology, sizes):
    tensor = torch.arange(sum(sizes), device=topology.device(0))
    devices = topology.take(len(sizes))
    found = target.scatter_gather.scatter([tensor, "text"], devices, chunk_sizes=sizes)
    expected = [chunk.tolist() for chunk in torch.arange(sum(sizes)).split(sizes)]
    checks.same([chunk.tolist() for chunk, _ in found], expected, sizes)
    checks.same([chunk.device for chunk, _ in found], devices, sizes)


@SIZES
@given(sizes=sizes)
@example(sizes=[3, 1])
def test_keyword_arguments_are_dealt_alike(target, topology, sizes):
    tensor = torch.arange(sum(sizes), device=topology.device(0))
    arguments = (tensor,), {"x": tensor}, topology.take(len(sizes))
    inputs, kwargs = target.scatter_gather.scatter_kwargs(*arguments, chunk_sizes=sizes)
    lengths = [(len(x), len(named["x"])) for (x,), named in zip(inputs, kwargs, strict=True)]
    checks.same(lengths, [(size, size) for size in sizes], sizes)


@WEIGHTS
@given(rows=st.integers(0, 40), weights=sizes, factor=st.sampled_from([1, 0.25, 1000]))
@example(rows=8, weights=[3, 1], factor=1)
def test_rows_are_dealt_in_proportion(target, topology, rows, weights, factor):
    tensor = torch.arange(rows, device=topology.device(0))
    devices = topology.take(len(weights))
    shares = [weight * factor for weight in weights]
    found = target.scatter_gather.scatter([tensor], devices, chunk_sizes=shares)
    lengths = [len(chunk) for [chunk] in found]
    checks.same([row for [chunk] in found for row in chunk.tolist()], list(range(rows)), weights)
    exact = [rows * weight / sum(weights) for weight in weights]
    surplus = [length - share for length, share in zip(lengths, exact, strict=False)]
    assert max(map(abs, surplus)) < len(weights), f"{rows} rows, weights {weights}: {lengths}"


senseless = pytest.mark.parametrize(
    ("sizes", "text"),
    [((1,), "1 chunk sizes for 2 devices"), ((1, -1), "negative"), ((0, 0), "every chunk size")],
)


@REFUSED
@senseless
def test_sizes_that_make_no_sense_are_refused(target, topology, sizes, text):
    tensor = torch.arange(4, device=topology.device(0))
    with pytest.raises(ValueError, match=text):
        target.scatter_gather.scatter(tensor, topology.take(2), chunk_sizes=sizes)


class Rows(nn.Module):
    """It tells how many rows it is given, once for each."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))

    def forward(self, rows):
        return torch.full_like(rows, len(rows)) * self.weight


@AT_ONCE
@senseless
def test_a_wrapper_refuses_sizes_that_make_no_sense_when_it_is_made(target, topology, sizes, text):
    with pytest.raises(ValueError, match=text):
        target.data_parallel.DataParallel(Rows(), topology.take(2), chunk_sizes=sizes)


@WRAPPED
@given(sizes=st.lists(st.integers(1, 4), min_size=2, max_size=4))
@example(sizes=[3, 1])
def test_a_wrapped_module_deals_out_by_its_chunk_sizes(target, topology, sizes):
    module, devices = Rows().to(topology.device(0)), topology.take(len(sizes))
    wrapped = target.data_parallel.DataParallel(module, devices, chunk_sizes=sizes)
    found = wrapped(torch.ones(sum(sizes), 2, device=topology.device(0)))
    checks.same(found[:, 0].tolist(), [float(n) for n in sizes for _ in range(n)], sizes)
    (gradient,) = torch.autograd.grad(found.sum(), module.parameters())
    checks.same(gradient.tolist(), [float(sum(n * n for n in sizes))] * 2, sizes)


@SIZES
def test_reference_knows_no_chunk_sizes(reference):
    for function in (reference.scatter_gather.scatter, reference.data_parallel.DataParallel):
        assert "chunk_sizes" not in inspect.signature(function).parameters
