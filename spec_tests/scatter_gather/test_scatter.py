"""scatter_gather.scatter: chunks of tensors on several devices."""

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from spec_tests import checks
from spec_tests.checks.leaks import check_none_kept, leaked_objects, objects_leaked_by_error
from spec_tests.checks.nested_values import storage_id
from spec_tests.checks.outcome import cotangent
from spec_tests.checks.refusals import refused
from spec_tests.machine import capabilities, profiles
from spec_tests.machine.clauses import cases, clause, error_of
from spec_tests.oracle.chunk_sizes import even_chunks
from spec_tests.strategies.calls import DeviceAt, KeywordCall
from spec_tests.strategies.comm import dense
from spec_tests.strategies.scatter_gather import (
    refused_scatter_calls,
    replicated_calls,
    scatter_calls,
    tensor_scatter_calls,
)
from spec_tests.strategies.tensors import TensorSpec, device_slots

#: Decorator that runs a third of the usual number of examples, because each is slow.
FEWER_EXAMPLES = profiles.divide_examples(3)
#: For each form of inputs: a function that returns such inputs with a tensor in them.
WRAPPINGS = {
    "bare": lambda tensor: tensor,
    "list": lambda tensor: ["text", [tensor]],
    "dict": lambda tensor: {"x": (1, {"y": tensor})},
}


def _scatter(inputs, devices, dim=0):
    arguments = {"inputs": inputs, "target_gpus": devices, "dim": dim}
    return KeywordCall("scatter_gather.scatter", arguments)


@clause("scatter_gather.scatter.tensor")
@clause("scatter_gather.scatter.result-class")
@given(call=tensor_scatter_calls())
@example(_scatter(dense(requires_grad=True), [DeviceAt(0), DeviceAt(1)]))
def test_tensor_is_split_along_dim(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


@clause("scatter_gather.scatter.nested")
@given(call=scatter_calls())
def test_tensors_in_nested_containers_are_split(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


@clause("scatter_gather.scatter.chunk-rule")
@clause("scatter_gather.scatter.count")
@given(rows=st.integers(0, 70), count=st.integers(1, 8))
@example(rows=9, count=4)
@example(rows=5, count=4)
@example(rows=34, count=8)
@example(rows=0, count=8)
def test_each_result_has_one_chunk_of_the_rounded_up_quotient(target, topology, rows, count):
    inputs = ["text", {"x": torch.arange(rows).to(topology.device(0))}]
    found = target.scatter_gather.scatter(inputs, topology.take(count))
    extents = [len(each["x"]) for _, each in found]
    expected = even_chunks(rows, count)
    found = {"count": len(extents), "extents": extents}
    expected = {"count": len(expected), "extents": expected}
    checks.same(found, expected, f"{rows} rows over {count}")


@clause("scatter_gather.scatter.without-tensors")
@given(call=replicated_calls())
def test_every_device_gets_inputs_without_tensors(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


@clause("scatter_gather.scatter.result-class")
@given(call=replicated_calls())
def test_inputs_other_than_a_bare_tensor_are_scattered_to_a_list(target, topology, call):
    checks.same(type(call.run(target, call.inputs(topology))), list, call, place="class")


@cases(
    "spelling",
    {
        "scatter_gather.scatter.devices-in-order": ["device"],
        "scatter_gather.scatter.device-spellings": ["ordinal", "text"],
    },
)
@given(slots=device_slots())
def test_chunks_are_in_the_order_of_ordinals_strings_or_torch_devices(
    target, topology, spelling, slots
):
    devices = [DeviceAt(slot, spelling).build(topology) for slot in slots]
    tensor = torch.arange(len(slots)).to(topology.device(1))
    found = target.scatter_gather.scatter([tensor], devices)
    checks.same([chunk.device for [chunk] in found], topology.take(slots), slots, place="device")


@clause("scatter_gather.scatter.no-devices")
@given(call=replicated_calls())
def test_empty_device_list_returns_an_empty_list_without_tensors(target, topology, call):
    inputs = {**call.inputs(topology), "target_gpus": []}
    checks.same(call.run(target, inputs), [], call)


@clause("scatter_gather.scatter.refuses-no-devices")
@pytest.mark.parametrize("wrap", WRAPPINGS)
@pytest.mark.parametrize("slot", [0, None], ids=["accelerator", "cpu"])
def test_tensor_with_an_empty_device_list_is_refused(target, topology, wrap, slot):
    call = _scatter(WRAPPINGS[wrap](dense(slot=slot)), [])
    refused(call, target, topology, error_of("comm.scatter.refuses-no-devices"))


@clause("scatter_gather.scatter.one-row-a-device")
@pytest.mark.parametrize("order", ["batch-first", "batch-last", "several"])
@given(count=st.integers(2, 4), dim=st.sampled_from([0, 1, -1]), data=st.data())
def test_rows_of_devices_without_a_batch_chunk_are_dropped(
    target, baselines, topology, order, dim, count, data
):
    rows = data.draw(st.integers(1, 2 * count))
    batch, row_per_device = (_spec(extent, dim) for extent in (rows, count))
    inputs = {"batch-first": [batch, row_per_device], "batch-last": [row_per_device, {"x": batch}]}
    ordered_inputs = inputs.get(order, [row_per_device, batch, (row_per_device, batch)])
    call = _scatter(ordered_inputs, [DeviceAt(slot) for slot in range(count)], dim)
    checks.agree(call, target, baselines, topology)


def _spec(extent, dim):
    shape = (extent, 1) if dim == 0 else (2, extent)
    return TensorSpec(shape, torch.float32, slot=0, requires_grad=True)


@clause("scatter_gather.scatter.surplus-devices")
@given(rows=st.integers(1, 3), surplus=st.integers(1, 3))
def test_scatter_ignores_devices_without_a_chunk(target, baselines, topology, rows, surplus):
    tensor = torch.arange(rows).to(topology.device(0))
    devices = [*topology.take(rows), *[99] * surplus]
    checks.agree(_scatter([tensor], devices), target, baselines, topology)


@clause("scatter_gather.scatter.dim-out-of-range")
@given(call=refused_scatter_calls())
def test_dim_out_of_range_of_a_tensor_is_refused(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


@clause("divergences.SG-4.scalars-are-copied")
@given(slots=device_slots(), source=st.sampled_from([0, 1, None]), rows=st.integers(1, 3))
@example(slots=(0, 0), source=0, rows=1)
def test_a_scalar_is_copied_to_every_replica(target, topology, slots, source, rows):
    scalar = torch.tensor(7, device=topology.device(source))
    bare = target.scatter_gather.scatter(scalar, topology.take(slots))
    tensor = torch.zeros(rows * len(slots), device=topology.device(0))
    found = target.scatter_gather.scatter([tensor, {"n": scalar}], topology.take(slots))
    copies = [container["n"] for _, container in found]
    checks.same([copy.device for copy in copies], topology.take(slots), slots)
    checks.same([copy.tolist() for copy in (*copies, *bare)], [7, 7] * len(slots), slots)
    storages = [*filter(None, map(storage_id, copies))]
    own = "copies with memory of their own"
    checks.same({own: len({*storages})}, {own: len(storages)}, slots)


@clause("divergences.SG-4.scalar-gradients-are-summed")
@given(slots=device_slots())
def test_gradients_of_the_copies_of_a_scalar_are_summed(target, topology, slots):
    scalar = torch.tensor(2.0, device=topology.device(0), requires_grad=True)
    copies = target.scatter_gather.scatter(scalar, topology.take(slots))
    torch.autograd.backward(list(copies), [cotangent(copy) * 3 for copy in copies])
    checks.same(scalar.grad.item(), 3.0 * len(slots), slots)


@clause("scatter_gather.scatter.refuses-sparse")
@pytest.mark.filterwarnings("ignore:Sparse .* tensor support is in beta state")
@pytest.mark.parametrize(
    "layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr], ids=str
)
@pytest.mark.parametrize("rows", [4, 0], ids="rows={}".format)
def test_split_of_a_sparse_tensor_is_refused(target, topology, layout, rows):
    capabilities.require("sparse")
    blocks = (1, 2) if layout is torch.sparse_bsr else None
    matrix = torch.eye(rows, 4).to_sparse(layout=layout, blocksize=blocks)
    with pytest.raises(RuntimeError):
        target.scatter_gather.scatter([matrix.to(topology.device(0))], topology.take(2))


@clause("scatter_gather.scatter.leaves-nothing")
@FEWER_EXAMPLES
@given(call=scatter_calls())
def test_scatter_keeps_no_references_after_the_call(target, topology, call):
    check_none_kept(leaked_objects(call, target, topology), call)


@clause("scatter_gather.scatter.leaves-nothing")
@FEWER_EXAMPLES
@given(call=refused_scatter_calls())
def test_scatter_keeps_no_references_after_an_error(target, topology, call):
    check_none_kept(objects_leaked_by_error(call, target, topology), call)
