"""comm.scatter: chunks of one tensor on several devices."""

import pytest
import torch
from hypothesis import example, given

from spec_tests.harness.compare import checks
from spec_tests.harness.conformance.clauses import clause
from spec_tests.oracle.chunk_sizes import even_chunks
from spec_tests.strategies.calls import DeviceAt, PublicCall
from spec_tests.strategies.comm import SPARSE, dense, scatter_calls
from spec_tests.strategies.tensors import TensorSpec, counting

UNEVEN_CALL = PublicCall(
    "comm.scatter", {"tensor": dense((5, 2)), "devices": [DeviceAt(0), DeviceAt(1)]}
)


@clause("comm.scatter.slices")
@given(call=scatter_calls())
@example(call=UNEVEN_CALL)
def test_comm_scatter_returns_consecutive_slices(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


@clause("comm.scatter.even-chunks")
@pytest.mark.parametrize("count", range(1, 9), ids="devices={}".format)
def test_extents_of_even_chunks_are_rounded_up(target, topology, count):
    def extents(rows):
        tensor = counting((rows, 2), torch.float32, topology.device(0))
        return [len(chunk) for chunk in target.comm.scatter(tensor, topology.take(count))]

    table = {rows: extents(rows) for rows in range(1, 26)}
    assert table == {rows: even_chunks(rows, count) for rows in range(1, 26)}


@clause("comm.scatter.empty-dimension")
@pytest.mark.parametrize("count", range(1, 9), ids="devices={}".format)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_every_device_gets_an_empty_chunk_of_an_empty_dimension(target, topology, count, dim):
    tensor = torch.empty((0, 0), device=topology.device(0))
    chunks = target.comm.scatter(tensor, topology.take(count), dim=dim)
    assert [(tuple(chunk.shape), chunk.device) for chunk in chunks] == [
        ((0, 0), device) for device in topology.take(count)
    ]


@clause("comm.scatter.surplus-devices")
def test_comm_scatter_ignores_devices_without_a_chunk(target, baselines, topology):
    arguments = {"tensor": dense((2, 3)), "devices": [DeviceAt(0), DeviceAt(1), 99]}
    checks.agree(PublicCall("comm.scatter", arguments), target, baselines, topology)


@clause("comm.scatter.zero-sizes")
@pytest.mark.parametrize("chunk_sizes", [[0, 4], [4, 0], [0, 0, 4]], ids=str)
def test_chunk_sizes_may_be_zero(target, topology, chunk_sizes):
    tensor = counting((4, 2), torch.float32, topology.device(0))
    chunks = target.comm.scatter(tensor, topology.take(len(chunk_sizes)), chunk_sizes)
    assert [len(chunk) for chunk in chunks] == chunk_sizes


@clause("comm.scatter.own-device-views")
@given(call=scatter_calls(slots=(0,), grads=(False,), layouts=("contiguous", "strided")))
def test_chunks_on_the_device_of_the_input_share_its_memory(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


@clause("comm.scatter.keeps-dense-strides")
def test_copied_chunks_have_dense_strides_in_the_input_order(target, baselines, topology):
    tensor = TensorSpec((4, 4, 2, 3), layout="channels_last", slot=None)
    arguments = {"tensor": tensor, "devices": [DeviceAt(0), DeviceAt(1)], "dim": 1}
    checks.agree(PublicCall("comm.scatter", arguments), target, baselines, topology)


@clause("comm.scatter.returns-tuple")
@given(call=scatter_calls())
def test_chunks_are_returned_in_a_tuple(target, topology, call):
    assert type(call.run(target, call.inputs(topology))) is tuple


@clause("comm.scatter.differentiable")
@given(call=scatter_calls(grads=(True,)))
def test_gradients_of_the_chunks_reach_the_input(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


def _scatter_sparse(chunk_sizes):
    arguments = {
        "tensor": SPARSE,
        "devices": [DeviceAt(0), DeviceAt(0)],
        "chunk_sizes": chunk_sizes,
    }
    return PublicCall("comm.scatter", arguments)


@clause("comm.scatter.refuses-sparse")
@pytest.mark.parametrize("chunk_sizes", [None, [1, 2]], ids=["even", "sizes"])
def test_scatter_refuses_sparse_tensors(target, topology, chunk_sizes):
    call = _scatter_sparse(chunk_sizes)
    with pytest.raises(RuntimeError):
        call.run(target, call.inputs(topology))


@clause("comm.scatter.refuses-sparse")
@pytest.mark.parametrize("chunk_sizes", [None, [1, 2]], ids=["even", "sizes"])
def test_error_for_sparse_tensors_equals_the_reference(target, reference, topology, chunk_sizes):
    checks.agree(_scatter_sparse(chunk_sizes), target, reference, topology)
