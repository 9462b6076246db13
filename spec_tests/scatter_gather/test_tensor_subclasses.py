"""scatter, and functions.Scatter: nested and masked tensors, other subclasses of Tensor.

The reference has no gradients of nested and masked tensors: SG-13.
"""

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from spec_tests import checks
from spec_tests.checks.refusals import check_error
from spec_tests.machine.clauses import cases, clause, error_of
from spec_tests.oracle.chunk_sizes import even_chunks
from spec_tests.strategies.tensor_subclasses import (
    WARNINGS,
    Jagged,
    Masked,
    Named,
    WithDefault,
    entries,
    jagged_specs,
    masked_specs,
    sum_of_squares,
)
from spec_tests.strategies.tensors import device_slots

pytestmark = pytest.mark.filterwarnings(*WARNINGS)
#: Devices of tensors that require a gradient; None is the CPU.
SLOTS = (0, 1, None)
NESTED_SPECS = jagged_specs(grads=(True,), slots=SLOTS)
MASKED_SPECS = masked_specs(grads=(True,), slots=SLOTS)
NESTED_EXAMPLE = Jagged((3, 1, 2, 4), requires_grad=True)
MASKED_EXAMPLE = Masked(4, requires_grad=True)


class WithoutSplitWithSizes(torch.Tensor):
    """A tensor whose `split_with_sizes` raises a TypeError."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function.__name__ == "split_with_sizes":
            raise TypeError("there is no split_with_sizes")
        return super().__torch_function__(function, types, args, kwargs or {})


def check_chunks(chunks, spec, topology, slots):
    """Check that ``chunks`` are consecutive parts of the tensor that ``spec`` describes."""
    __tracebackhide__ = True
    whole = spec.build(topology)
    counts = even_chunks(len(spec), len(slots))
    checks.same([len(entries(chunk)) for chunk in chunks], counts, spec)
    checks.same([entry for chunk in chunks for entry in entries(chunk)], entries(whole), spec)
    checks.same([chunk.device for chunk in chunks], topology.take(slots)[: len(counts)], spec)
    for name in ("layout", "dtype", "requires_grad", "__class__"):
        checks.same({getattr(chunk, name) for chunk in chunks}, {getattr(whole, name)}, spec)


@clause("functions.scatter.wrappers")
@given(spec=jagged_specs() | masked_specs(), slots=device_slots())
@example(spec=Jagged((3, 1, 2, 4), requires_grad=True, slot=None), slots=(0, 1))
@example(spec=Masked(4, requires_grad=True), slots=(0, 1))
def test_scatter_function_splits_nested_and_masked_tensors(target, topology, spec, slots):
    whole = spec.build(topology)
    chunks = target.functions.Scatter.apply(topology.take(slots), None, 0, whole)
    check_chunks(chunks, spec, topology, slots)


@clause("scatter_gather.scatter.nested-tensors")
@given(spec=jagged_specs(), slots=device_slots())
@example(spec=Jagged((3, 1, 2, 4)), slots=(0, 1))
@example(spec=Jagged((3, 1, 2, 4), requires_grad=True), slots=(0, 1))
@example(spec=Jagged((3, 1, 2, 4), slot=None), slots=(0,))
@example(spec=Jagged((3, 1), requires_grad=True, slot=None), slots=(0, 1, 2, 3))
def test_nested_tensor_is_split_into_consecutive_sequences(target, topology, spec, slots):
    chunks = target.scatter_gather.scatter(spec.build(topology), topology.take(slots))
    check_chunks(chunks, spec, topology, slots)


@clause("scatter_gather.scatter.masked-tensors")
@given(spec=masked_specs(), slots=device_slots())
@example(spec=Masked(4), slots=(0, 1))
@example(spec=Masked(4, requires_grad=True), slots=(0, 1))
@example(spec=Masked(2), slots=(0, 1, 2, 3))
def test_masked_tensor_is_split_with_its_mask(target, topology, spec, slots):
    chunks = target.scatter_gather.scatter(spec.build(topology), topology.take(slots))
    check_chunks(chunks, spec, topology, slots)


@clause("scatter_gather.scatter.nested-tensors")
@given(nested=jagged_specs(), slots=device_slots())
def test_nested_masked_and_plain_tensors_are_split_in_one_call(target, topology, nested, slots):
    count = len(nested)
    masked = Masked(count)
    plain = torch.arange(count).to(topology.device(0))
    args = (nested.build(topology), [masked.build(topology)])
    found, found_kwargs = target.scatter_gather.scatter_kwargs(
        args, {"x": plain}, topology.take(slots)
    )
    check_chunks([nested_chunk for nested_chunk, _ in found], nested, topology, slots)
    check_chunks([masked_chunk for _, [masked_chunk] in found], masked, topology, slots)
    checks.same(
        [len(kwargs["x"]) for kwargs in found_kwargs], even_chunks(count, len(slots)), nested
    )


@cases(
    "spec",
    {
        "scatter_gather.scatter.nested-tensors": [Jagged((1, 2, 3, 4))],
        "scatter_gather.scatter.masked-tensors": [Masked(4)],
    },
)
@given(rows=st.integers(1, 8))
def test_entries_of_devices_without_a_batch_chunk_are_dropped(target, topology, spec, rows):
    batch = torch.arange(rows).to(topology.device(0))
    whole = spec.build(topology)
    found = target.scatter_gather.scatter([batch, whole], topology.take(4))
    count = len(even_chunks(rows, 4))
    expected = [[entry] for entry in entries(whole)[:count]]
    checks.same([entries(chunk) for _, chunk in found], expected, rows)


@cases(
    "spec",
    {
        "scatter_gather.scatter.nested-tensors": [Jagged((1, 2, 3))],
        "scatter_gather.scatter.masked-tensors": [Masked(3)],
    },
)
def test_nested_and_masked_tensors_are_split_along_the_last_dim(target, topology, spec):
    whole = spec.build(topology)
    found = target.scatter_gather.scatter(whole, topology.take(2), -1)
    checks.same([chunk.size(-1) for chunk in found], [1, 1], spec)
    joined = torch.cat([chunk.to(topology.device(0)) for chunk in map(_values, found)], -1)
    checks.same(joined, _values(whole), spec)


def _values(tensor):
    return tensor.values() if tensor.is_nested else tensor.get_data()


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
@given(spec=NESTED_SPECS | MASKED_SPECS, slots=device_slots())
@example(spec=NESTED_EXAMPLE, slots=(0, 1))
@example(spec=MASKED_EXAMPLE, slots=(0, 1))
def test_each_entry_of_a_nested_or_masked_tensor_gets_its_gradient(target, topology, spec, slots):
    tensor = spec.build(topology)
    chunks = target.scatter_gather.scatter([tensor], topology.take(slots))
    weighted_total([chunk for [chunk] in chunks], tensor.device).backward()
    expected = weighted_entries(spec, topology, len(slots))
    checks.same(entries(tensor.grad), expected, spec)
    checks.same((type(tensor.grad), tensor.grad.device), (type(tensor), tensor.device), spec)


@clause("divergences.SG-13.gradients-of-masked-tensors-through-the-function")
@given(spec=MASKED_SPECS, slots=device_slots())
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


@clause("scatter_gather.scatter.ragged-dim")
@pytest.mark.parametrize("dim", [1, -2], ids="dim={}".format)
@pytest.mark.parametrize("slot", [0, None], ids=["accelerator", "cpu"])
def test_split_along_the_ragged_dimension_is_refused(target, topology, dim, slot):
    spec = Jagged((3, 1), slot=slot)
    with pytest.raises(RuntimeError) as caught:
        target.scatter_gather.scatter([spec.build(topology)], topology.take(2), dim)
    error = error_of("scatter_gather.scatter.ragged-dim")
    check_error(caught.value, error, topology, spec)


@clause("scatter_gather.scatter.tensor-subclasses")
@pytest.mark.parametrize("slot", [0, None], ids=["accelerator", "cpu"])
@given(rows=st.integers(1, 7), slots=device_slots(), requires_grad=st.booleans())
def test_subclass_without_split_with_sizes_is_split(
    target, topology, slot, rows, slots, requires_grad
):
    tensor = (
        torch.arange(1.0, rows + 1).to(topology.device(slot)).as_subclass(WithoutSplitWithSizes)
    )
    tensor.requires_grad_(requires_grad)
    chunks = target.scatter_gather.scatter(tensor, topology.take(slots))
    checks.same([len(chunk) for chunk in chunks], even_chunks(rows, len(slots)), rows)
    found = [element for chunk in chunks for element in chunk.tolist()]
    checks.same(found, tensor.tolist(), rows)


@clause("divergences.SG-14.chunks-keep-class-and-attributes")
@pytest.mark.parametrize("slot", [0, None], ids=["accelerator", "cpu"])
@given(
    slots=device_slots(), requires_grad=st.booleans(), kind=st.sampled_from([Named, WithDefault])
)
@example(slots=(0, 1), requires_grad=False, kind=WithDefault)
def test_chunks_have_the_class_and_the_attributes_of_their_tensor(
    target, topology, slot, slots, requires_grad, kind
):
    rows = torch.arange(float(len(slots))).to(topology.device(slot)).as_subclass(kind)
    rows.axis = {"name": "axis"}
    chunks = target.scatter_gather.scatter(
        rows.requires_grad_(requires_grad), topology.take(slots)
    )
    checks.same([type(chunk) for chunk in chunks], [kind] * len(slots))
    checks.same([chunk.axis is rows.axis for chunk in chunks], [True] * len(slots))
