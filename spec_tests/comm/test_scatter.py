"""comm.scatter: splitting one tensor over devices."""

import pytest
import torch
from hypothesis import given

from spec_tests.harness.compare import checks
from spec_tests.harness.conformance.clauses import clause
from spec_tests.oracle.chunk_sizes import even_chunks
from spec_tests.strategies.calls import DeviceAt, PublicCall
from spec_tests.strategies.comm import SPARSE, dense, scatter_calls
from spec_tests.strategies.tensors import TensorSpec, counting


@clause("comm.scatter.slices")
@given(call=scatter_calls())
def test_chunks_are_consecutive_slices(target, answers, topology, call):
    checks.agree(call, target, answers, topology)


@clause("comm.scatter.even-chunks")
@pytest.mark.parametrize("count", range(1, 9), ids="devices={}".format)
def test_without_sizes_each_chunk_has_the_rounded_up_share(target, topology, count):
    def extents(rows):
        tensor = counting((rows, 2), torch.float32, topology.device(0))
        return [len(chunk) for chunk in target.comm.scatter(tensor, topology.take(count))]

    table = {rows: extents(rows) for rows in range(1, 26)}
    assert table == {rows: even_chunks(rows, count) for rows in range(1, 26)}


@clause("comm.scatter.empty-dimension")
@pytest.mark.parametrize("count", range(1, 9), ids="devices={}".format)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_an_empty_dimension_gives_every_device_an_empty_chunk(target, topology, count, dim):
    tensor = torch.empty((0, 0), device=topology.device(0))
    chunks = target.comm.scatter(tensor, topology.take(count), dim=dim)
    assert [(tuple(chunk.shape), chunk.device) for chunk in chunks] == [
        ((0, 0), device) for device in topology.take(count)
    ]


@clause("comm.scatter.surplus-devices")
def test_devices_without_a_chunk_are_not_looked_at(target, answers, topology):
    arguments = {"tensor": dense((2, 3)), "devices": [DeviceAt(0), DeviceAt(1), 99]}
    checks.agree(PublicCall("comm.scatter", arguments), target, answers, topology)


@clause("comm.scatter.zero-sizes")
@pytest.mark.parametrize("sizes", [[0, 4], [4, 0], [0, 0, 4]], ids=str)
def test_chunks_of_no_rows_are_allowed(target, topology, sizes):
    tensor = counting((4, 2), torch.float32, topology.device(0))
    chunks = target.comm.scatter(tensor, topology.take(len(sizes)), sizes)
    assert [len(chunk) for chunk in chunks] == sizes


@clause("comm.scatter.own-device-views")
@given(call=scatter_calls(slots=(0,), grads=(False,), layouts=("contiguous", "strided")))
def test_chunks_on_the_device_of_the_input_share_its_memory(target, answers, topology, call):
    checks.agree(call, target, answers, topology)


@clause("comm.scatter.own-device-views")
def test_a_chunk_on_the_device_of_the_input_writes_through(target, topology):
    tensor = counting((4, 3), torch.float32, topology.device(0))
    first, second = target.comm.scatter(tensor, [topology.device(0)] * 2)
    second.fill_(-1)
    assert tensor[2:].tolist() == [[-1] * 3] * 2
    assert first._version == second._version == tensor._version > 0


@clause("comm.scatter.views-refuse-in-place")
def test_a_chunk_that_is_part_of_the_graph_refuses_in_place_writes(target, topology):
    tensor = torch.ones((4, 3), device=topology.device(0), requires_grad=True)
    chunk, _ = target.comm.scatter(tensor, [topology.device(0)] * 2)
    with pytest.raises(RuntimeError, match="returns multiple views"):
        chunk.zero_()


@clause("comm.scatter.keeps-dense-strides")
@pytest.mark.parametrize("layout", ["transposed", "strided", "expanded", "channels_last"])
@pytest.mark.parametrize("dim", range(4), ids="dim={}".format)
def test_copied_chunks_keep_dense_strides(target, answers, topology, layout, dim):
    tensor = TensorSpec((4, 4, 2, 3), layout=layout, slot=None)
    arguments = {"tensor": tensor, "devices": [DeviceAt(0), DeviceAt(1)], "dim": dim}
    checks.agree(PublicCall("comm.scatter", arguments), target, answers, topology)


@clause("comm.scatter.returns-tuple")
@given(call=scatter_calls())
def test_the_chunks_come_in_a_tuple(target, topology, call):
    assert type(call.run(target, call.inputs(topology))) is tuple


@clause("comm.scatter.differentiable")
@given(call=scatter_calls(grads=(True,)))
def test_gradients_of_the_chunks_reach_the_input(target, answers, topology, call):
    checks.agree(call, target, answers, topology)


def _scatter_sparse(sizes):
    arguments = {"tensor": SPARSE, "devices": [DeviceAt(0), DeviceAt(0)], "chunk_sizes": sizes}
    return PublicCall("comm.scatter", arguments)


@clause("comm.scatter.refuses-sparse")
@pytest.mark.parametrize("sizes", [None, [1, 2]], ids=["even", "sizes"])
def test_sparse_tensors_are_refused(target, topology, sizes):
    call = _scatter_sparse(sizes)
    with pytest.raises(RuntimeError):
        call.run(target, call.inputs(topology))


@clause("comm.scatter.refuses-sparse")
@pytest.mark.parametrize("sizes", [None, [1, 2]], ids=["even", "sizes"])
def test_sparse_tensors_are_refused_in_the_words_of_the_reference(
    target, reference, topology, sizes
):
    checks.agree(_scatter_sparse(sizes), target, reference, topology)
