"""Packed sequences, which the reference cannot split: SG-12."""

import torch
from hypothesis import example, given

from spec_tests import checks
from spec_tests.checks.snapshot import snapshot
from spec_tests.machine.clauses import clause
from spec_tests.oracle.chunk_sizes import even_chunks
from spec_tests.strategies.packed_sequences import Packed, find_errors, packed_specs, unpack
from spec_tests.strategies.tensors import device_slots

example_sorted = example(spec=Packed((3, 2, 1), is_sorted=True, requires_grad=True), slots=(0, 1))
example_unsorted = example(spec=Packed((1, 3, 2), requires_grad=True), slots=(0, 1))


def _values(found):
    return snapshot(list(found), {}, strides=False)


@clause("divergences.SG-12.packed-sequences-are-split-by-sequence")
@given(spec=packed_specs(), slots=device_slots())
@example_sorted
@example_unsorted
def test_every_replica_gets_whole_sequences_in_order(target, topology, spec, slots):
    packed = spec.build(topology)
    chunks = target.scatter_gather.scatter([packed, "text"], topology.take(slots))
    counts = even_chunks(len(spec.lengths), len(slots))
    checks.same([find_errors(chunk) for chunk, _ in chunks], [[] for _ in counts], spec)
    checks.same([len(unpack(chunk)) for chunk, _ in chunks], counts, spec)
    found = [sequence for chunk, _ in chunks for sequence in unpack(chunk)]
    checks.same(_values(found), _values(unpack(packed)), spec)
    devices = topology.take(slots)[: len(counts)]
    checks.same([chunk.data.device for chunk, _ in chunks], devices, spec)


@clause("divergences.SG-12.packed-sequences-come-back")
@given(spec=packed_specs(), slots=device_slots())
@example_sorted
@example_unsorted
def test_gather_restores_the_packed_sequence(target, topology, spec, slots):
    packed = spec.build(topology)
    chunks = target.scatter_gather.scatter({"x": packed}, topology.take(slots))
    found = target.scatter_gather.gather(chunks, topology.device(0))["x"]
    checks.same(find_errors(found), [], spec)
    checks.same(_values(unpack(found)), _values(unpack(packed)), spec)
    checks.same(found.batch_sizes.tolist(), packed.batch_sizes.tolist(), spec)
    checks.same(found.sorted_indices is None, spec.is_sorted, spec)


@clause("divergences.SG-12.gradients-of-packed-sequences")
@given(spec=packed_specs(grads=(True,)), slots=device_slots())
@example_sorted
@example_unsorted
def test_gradients_of_packed_sequences_reach_their_own_rows(target, topology, spec, slots):
    packed = spec.build(topology)
    chunks = target.scatter_gather.scatter([packed], topology.take(slots))
    [found] = target.scatter_gather.gather(chunks, topology.device(0))
    # The rows themselves are the gradient of the output, so a misplaced row changes the result.
    (gradient,) = torch.autograd.grad(found.data, packed.data, found.data.detach())
    checks.same(gradient, packed.data, spec)
