"""comm.broadcast with ``out``: copying into tensors that the caller provides."""

import pytest
import torch
from hypothesis import given

from spec_tests.harness.compare import checks
from spec_tests.harness.compare.refusals import refused
from spec_tests.harness.conformance.clauses import clause
from spec_tests.strategies.calls import PublicCall
from spec_tests.strategies.comm import SPARSE, broadcast_out_calls, dense
from spec_tests.strategies.sparse import SparseSpec
from spec_tests.strategies.tensors import counting

CPU_OUT = (
    "Expected all output tensors to be {{KIND}} tensors, "
    "but output tensor at index {} has device 'cpu'"
)
SHAPE = (
    "Expected all output tensors to have same shape as the source tensor [4, 3], "
    "but output tensor at index {} has shape {}"
)


def _broadcast(*out):
    return PublicCall("comm.broadcast", {"tensor": dense(), "out": list(out)})


@clause("comm.broadcast.out-filled")
@given(call=broadcast_out_calls())
def test_the_outputs_are_filled_and_returned(target, answers, topology, call):
    topology.require_copies()
    checks.agree(call, target, answers, topology)


@clause("comm.broadcast.out-filled")
def test_the_outputs_come_in_a_new_list(target, topology):
    tensor = counting((4, 3), torch.float32, topology.device(0))
    outs = [torch.empty((4, 3), device=device) for device in topology.take(2)]
    results = target.comm.broadcast(tensor, out=outs)
    assert results is not outs
    assert [id(result) for result in results] == [id(out) for out in outs]


@clause("comm.broadcast.out-differentiable")
@given(call=broadcast_out_calls(grads=(True,)))
def test_the_outputs_carry_the_gradient_of_the_input(target, answers, topology, call):
    topology.require_copies()
    checks.agree(call, target, answers, topology)


@clause("comm.broadcast.out-sparse")
@pytest.mark.parametrize("coalesced", [False, True], ids=["uncoalesced", "coalesced"])
def test_a_sparse_output_takes_over_a_sparse_input(target, answers, topology, coalesced):
    source = SparseSpec(rows=(0, 0, 1), coalesced=coalesced)
    call = PublicCall("comm.broadcast", {"tensor": source, "out": [SPARSE]})
    checks.agree(call, target, answers, topology)


@clause("comm.broadcast.out-versions")
def test_every_output_counts_one_write(target, topology):
    topology.require_copies()
    tensor = counting((4, 3), torch.float32, topology.device(0))
    outs = [torch.empty((4, 3), device=device) for device in topology.take(2)]
    before = [out._version for out in outs]
    target.comm.broadcast(tensor, out=outs)
    assert [out._version for out in outs] == [version + 1 for version in before]


@clause("comm.broadcast.out-refuses-cpu")
@pytest.mark.parametrize("index", [0, 1], ids="index={}".format)
def test_an_output_on_the_cpu_is_refused(target, topology, index):
    out = [dense(), dense()]
    out[index] = dense(slot=None)
    refused(_broadcast(*out), target, topology, RuntimeError, CPU_OUT.format(index))


@clause("comm.broadcast.out-refuses-other-shapes")
@pytest.mark.parametrize("shape", [(1, 4, 3), (4, 1), (3,)], ids=str)
@pytest.mark.parametrize("index", [0, 1], ids="index={}".format)
def test_an_output_of_another_shape_is_refused(target, topology, shape, index):
    out = [dense(), dense()]
    out[index] = dense(shape)
    refused(_broadcast(*out), target, topology, RuntimeError, SHAPE.format(index, list(shape)))


@clause("comm.broadcast.out-refuses-leaves")
def test_an_output_that_is_a_leaf_of_the_graph_is_refused(target, topology):
    topology.require_copies()
    arguments = {"tensor": dense(requires_grad=True), "out": [dense(requires_grad=True)]}
    text = "a leaf Variable that requires grad is being used in an in-place operation."
    call = PublicCall("comm.broadcast", arguments)
    refused(call, target, topology, RuntimeError, text)
