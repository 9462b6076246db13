"""Nested and masked tensors whose gradients or splits fail in the reference: SG-13."""

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spec_tests.harness.compare import checks
from spec_tests.harness.compare.checks import LAYER
from spec_tests.harness.conformance.clauses import clause
from spec_tests.harness.environment import example_count
from spec_tests.oracle.chunk_sizes import even_chunks
from spec_tests.strategies.tensor_subclasses import (
    WARNINGS,
    Jagged,
    Masked,
    SequenceSum,
    entries,
    jagged_specs,
    masked_specs,
    sum_of_squares,
)
from spec_tests.strategies.tensors import device_slots

pytestmark = pytest.mark.filterwarnings(*WARNINGS)
#: Devices of the inputs; None is the CPU.
SLOTS = (0, 1, None)
NESTED = jagged_specs(grads=(True,), slots=SLOTS)
MASKED = masked_specs(grads=(True,), slots=SLOTS)
NESTED_EXAMPLE = Jagged((3, 1, 2, 4), requires_grad=True)
MASKED_EXAMPLE = Masked(4, requires_grad=True)


def weighted_total(chunks, device):
    """Return the sum of ``number * sum_of_squares(chunk)``. The first chunk has number 1."""
    totals = [sum_of_squares(chunk).to(device) for chunk in chunks]
    return sum(number * chunk_total for number, chunk_total in enumerate(totals, 1))


def weighted_entries(spec, topology, count):
    """Return the gradient of `weighted_total`: ``2 * chunk number * entry`` for each entry."""
    counts = even_chunks(len(spec), count)
    numbers = [number for number, length in enumerate(counts, 1) for _ in range(length)]
    pairs = zip(entries(spec.build(topology)), numbers, strict=True)
    return [_multiply(entry, 2 * number) for entry, number in pairs]


def _multiply(entry, factor):
    if isinstance(entry, list):
        return [_multiply(member, factor) for member in entry]
    return None if entry is None else entry * factor


@clause("divergences.SG-13.gradients-of-nested-and-masked-tensors")
@given(spec=NESTED | MASKED, slots=device_slots())
@example(spec=NESTED_EXAMPLE, slots=(0, 1))
@example(spec=MASKED_EXAMPLE, slots=(0, 1))
def test_each_entry_of_a_nested_or_masked_tensor_gets_its_gradient(target, topology, spec, slots):
    tensor = spec.build(topology)
    chunks = target.scatter_gather.scatter([tensor], topology.take(slots))
    weighted_total([chunk for [chunk] in chunks], tensor.device).backward()
    expected = weighted_entries(spec, topology, len(slots))
    checks.same(entries(tensor.grad), expected, spec)
    checks.same((type(tensor.grad), tensor.grad.device), (type(tensor), tensor.device), spec)


@clause("divergences.SG-13.training-on-nested-and-masked-tensors")
@example_count.divide_examples(3)
@given(spec=NESTED | MASKED, slots=device_slots())
@example(spec=NESTED_EXAMPLE, slots=(0, 1))
@example(spec=MASKED_EXAMPLE, slots=(0, 1))
def test_gradient_of_an_input_equals_its_gradient_without_the_wrapper(
    target, topology, spec, slots
):
    module = SequenceSum().to(topology.device(slots[0]))
    wrapped_input, module_input = (
        spec.build(topology),
        replace(spec, slot=slots[0]).build(topology),
    )
    wrapped = target.data_parallel.DataParallel(module, topology.take(slots))
    for function, inputs in ((wrapped, wrapped_input), (module, module_input)):
        function(inputs).square().sum().backward()
    checks.same(_elements(wrapped_input.grad), _elements(module_input.grad), spec, tolerance=LAYER)


def _elements(tensor):
    return tensor.values() if tensor.is_nested else tensor.to_tensor(0.0)


@clause("divergences.SG-13.gradients-of-masked-tensors-through-the-function")
@given(spec=MASKED, slots=device_slots())
@example(spec=MASKED_EXAMPLE, slots=(0, 1))
def test_gradients_flow_through_the_scatter_function(target, topology, spec, slots):
    tensor = spec.build(topology)
    chunks = target.functions.Scatter.apply(topology.take(slots), None, 0, tensor)
    weighted_total(chunks, tensor.device).backward()
    checks.same(entries(tensor.grad), weighted_entries(spec, topology, len(slots)), spec)


@clause("divergences.SG-13.masked-tensors-on-the-cpu")
@given(rows=st.integers(1, 7), slots=device_slots(), requires_grad=st.booleans())
@example(rows=4, slots=(0, 1), requires_grad=False)
def test_a_masked_tensor_on_the_cpu_is_split(target, topology, rows, slots, requires_grad):
    spec = Masked(rows, requires_grad, slot=None)
    whole, devices = spec.build(topology), topology.take(slots)
    scattered = target.scatter_gather.scatter(whole, devices)
    from_function = target.functions.Scatter.apply(devices, None, 0, whole)
    for chunks in (scattered, from_function):
        used = devices[: len(even_chunks(rows, len(slots)))]
        checks.same([chunk.device for chunk in chunks], used, spec)
        checks.same([entry for chunk in chunks for entry in entries(chunk)], entries(whole), spec)
