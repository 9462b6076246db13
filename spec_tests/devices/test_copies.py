"""Copies between devices, and between a device and the CPU: values, layouts, dtypes, order."""

import dataclasses
import itertools

import torch
from hypothesis import example, given
from hypothesis import strategies as st

from spec_tests.checks.side_streams import late_copies, queued_arange
from spec_tests.machine.capabilities import offered, offers
from spec_tests.machine.clauses import clause
from spec_tests.machine.devices import queue_work
from spec_tests.strategies.tensors import DTYPES, TensorSpec, tensor_specs

#: Numbers of elements of 4 bytes: 64 bytes are one cache line, and 1 MiB is more than a staging
#: buffer.
EXTENTS = (16, 2**18)
#: The CPU, and the first two devices of the topology.
SLOTS = (None, 0, 1)
#: The converted values. They fit in every dtype.
NUMBERS = torch.tensor([0.0, 0.25, 0.75, 1.0, 2.5, 100.5])


@clause("devices.copies.values")
def test_a_copy_has_the_values_of_its_source(topology):
    everywhere = [torch.device("cpu"), *dict.fromkeys(topology.devices)]
    for extent, source in itertools.product(EXTENTS, everywhere):
        expected = torch.arange(1, extent + 1, dtype=torch.int32)
        numbers = expected.to(source)
        for target in everywhere:
            copy = numbers.to(target)
            assert copy.device == target, f"a copy to {target} is on {copy.device}"
            text = f"{4 * extent} bytes copied from {source} to {target} arrive with other values"
            assert torch.equal(copy.cpu(), expected), text


@clause("devices.copies.layouts")
@given(spec=tensor_specs(slots=(None,), grads=(False,)), slots=st.permutations(SLOTS))
@example(spec=TensorSpec((2, 1, 3), layout="transposed", slot=None), slots=SLOTS)
def test_a_copy_of_any_layout_has_the_values_and_strides_of_the_cpu(topology, spec, slots):
    expected = spec.build(topology)
    found = expected
    for slot in (*slots, None):
        before, found = found, found.to(topology.device(slot), copy=True)
        text = f"{tuple(before.shape)} with strides {before.stride()} from {before.device}"
        assert found.stride() == before.clone().stride(), f"strides {found.stride()}: {text}"
        assert _have_equal_bits(found.cpu(), expected), f"other values: {text} to {found.device}"


@clause("devices.copies.layouts")
@given(spec=tensor_specs(slots=(0, 1), grads=(False,)), slot=st.sampled_from(SLOTS))
@example(spec=TensorSpec((1, 2), layout="strided"), slot=None)
def test_a_strided_view_on_a_device_is_copied(topology, spec, slot):
    source = spec.build(topology)
    found, expected = source.to(topology.device(slot), copy=True), _on_cpu(spec, topology)
    text = f"{tuple(source.shape)} with strides {source.stride()} from {source.device}"
    assert _have_equal_bits(found.cpu(), expected), f"other values: {text} to {found.device}"


@clause("devices.copies.cast")
def test_a_copy_to_another_dtype_converts_as_the_cpu_does(topology):
    for dtype, slots in itertools.product(offered(DTYPES), itertools.permutations(SLOTS, 2)):
        expected = NUMBERS.to(dtype)
        source, target = topology.take(slots)
        found = NUMBERS.to(source).to(target, dtype)
        assert torch.equal(found.cpu(), expected), f"{dtype} on {target}: {found.tolist()}"


@clause("devices.copies.conjugate")
def test_a_lazy_conjugate_or_negative_is_copied(topology):
    numbers = torch.arange(6.0).reshape(2, 3).t()
    views = {"_neg_view": torch._neg_view}
    if offers("complex64"):
        views |= {"conj": torch.conj, "conj().imag": lambda each: each.conj().imag}
    for slots in itertools.permutations(SLOTS, 2):
        source, target = topology.take(slots)
        for name, view in views.items():
            value = numbers if view is torch._neg_view else numbers * (1 - 2j)
            found = view(value.to(source)).to(target).cpu()
            text = f"{name} of a tensor on {source}, copied to {target}, has other values"
            assert torch.equal(found.resolve_neg(), view(value).resolve_neg()), text


@clause("devices.copies.pageable")
def test_pageable_memory_may_change_after_a_copy(topology):
    for device in topology.devices:
        with late_copies(topology):
            source = torch.arange(1.0, 5.0)
            copy = source.to(device, non_blocking=True)
            source.fill_(-1)
            found = copy.cpu().tolist()
        assert found == [1, 2, 3, 4], f"a copy to {device} has the values {found}, not 1 to 4"


@clause("devices.copies.pinned")
def test_pinned_memory_may_be_freed_after_a_copy(topology):
    for device in topology.devices:
        with late_copies(topology):
            source = torch.arange(1.0, 5.0).pin_memory()
            copy = source.to(device, non_blocking=True)
            del source
            new = torch.full((4,), -1.0).pin_memory()
            found = (copy * 2).tolist()
        del new
        assert found == [2, 4, 6, 8], f"a copy to {device} has {found}, not [2, 4, 6, 8]"


@clause("devices.copies.after-source")
def test_a_copy_follows_the_work_on_its_source(topology):
    topology.require(distinct=2)
    with late_copies(topology):
        source = queued_arange(topology, 0, 4)
        found = source.to(topology.device(1), non_blocking=True).tolist()
    assert found == [1, 2, 3, 4], f"the copy has the values {found}, not 1 to 4"


@clause("devices.copies.after-destination")
def test_a_copy_follows_the_work_on_its_destination(topology):
    topology.require(distinct=2)
    source = torch.zeros(4, device=topology.device(0))
    destination = torch.arange(1.0, 5.0, device=topology.device(1))
    topology.synchronize()
    with late_copies(topology):
        queue_work(destination.device, 20)
        before = destination * 1
        destination.copy_(source, non_blocking=True)
        found = before.tolist(), destination.tolist()
    assert found == ([1, 2, 3, 4], [0, 0, 0, 0]), f"read before and after the copy: {found}"


@clause("devices.copies.before-destination")
def test_later_work_on_the_destination_follows_a_copy(topology):
    topology.require(distinct=2)
    source = torch.arange(1.0, 5.0, device=topology.device(0))
    topology.synchronize()
    with late_copies(topology):
        queue_work(source.device, 20)
        found = (source.to(topology.device(1), non_blocking=True) * 2).tolist()
    assert found == [2, 4, 6, 8], f"work after the copy reads {found}"


@clause("devices.copies.before-source")
def test_later_work_on_the_source_follows_a_copy(topology):
    topology.require(distinct=2)
    for layout in ("contiguous", "channels_last"):
        spec = TensorSpec((2, 3, 4, 5), layout=layout, slot=0)
        source, kept = spec.build(topology), spec.build(topology).cpu()
        topology.synchronize()
        with late_copies(topology):
            queue_work(topology.device(1), 20)
            copy = source.to(topology.device(1), non_blocking=True)
            source.zero_()
            found = copy.cpu()
        assert torch.equal(found, kept), f"a {layout} copy has values written after it"


def _on_cpu(spec, topology):
    return dataclasses.replace(spec, slot=None).build(topology)


def _have_equal_bits(tensor, other):
    # NaN is unequal to itself, and negative zero equals zero.
    dense = [each.resolve_conj().resolve_neg().flatten() for each in (tensor, other)]
    first, second = (each.clone(memory_format=torch.contiguous_format) for each in dense)
    return torch.equal(first.view(torch.uint8), second.view(torch.uint8))
