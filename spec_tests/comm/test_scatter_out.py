"""comm.scatter with ``out``: filling tensors that the caller provides."""

import pytest
import torch
from hypothesis import given

from spec_tests.harness.compare import checks
from spec_tests.harness.compare.refusals import refused
from spec_tests.harness.conformance.clauses import clause
from spec_tests.strategies.calls import PublicCall
from spec_tests.strategies.comm import dense, scatter_out_calls
from spec_tests.strategies.tensors import counting

CPU_OUT = (
    "Expected all output tensors to be {{KIND}} tensors, "
    "but output tensor at index {} has device 'cpu'"
)
SHAPE = (
    "Output tensor at index {} has incorrect shape: {}. "
    "Expected same shape except for scatter dim {} as the source tensor: [4, 2]"
)
TOTAL = (
    "Total size for output tensors along scatter dim 0 does not match the source tensor size at "
    "dim 0. Expected 4, but got total size 3"
)


def _scatter(*out, **rest):
    arguments = {"tensor": dense((4, 2)), "out": list(out), **rest}
    return PublicCall("comm.scatter", arguments)


@clause("comm.scatter.out-filled")
@given(call=scatter_out_calls())
def test_the_outputs_are_filled_in_order_and_returned(target, answers, topology, call):
    checks.agree(call, target, answers, topology)


@clause("comm.scatter.out-differentiable")
@given(call=scatter_out_calls(grads=(True,)))
def test_the_outputs_carry_the_gradient_of_the_input(target, answers, topology, call):
    checks.agree(call, target, answers, topology)


@clause("comm.scatter.out-versions")
def test_every_output_counts_one_write(target, topology):
    tensor = counting((4, 2), torch.float32, topology.device(0))
    outs = [torch.empty((2, 2), device=device) for device in topology.take(2)]
    before = [out._version for out in outs]
    target.comm.scatter(tensor, out=outs)
    assert [out._version for out in outs] == [version + 1 for version in before]


@clause("comm.scatter.out-copies-onto-itself")
def test_an_output_that_is_the_chunk_already_is_written_all_the_same(target, topology):
    tensor = counting((4, 2), torch.float32, topology.device(0))
    outs = list(tensor.split(2))
    version = tensor._version
    target.comm.scatter(tensor, out=outs)
    assert tensor.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert tensor._version == version + 2


@clause("comm.scatter.out-refuses-none")
@pytest.mark.parametrize("dim", [0, 7], ids=["dim-right", "dim-wrong"])
def test_no_output_at_all_is_refused(target, topology, dim):
    text = "Expected at least one output tensor to scatter to"
    refused(_scatter(dim=dim), target, topology, RuntimeError, text)


@clause("comm.scatter.out-refuses-devices")
@pytest.mark.parametrize("devices", [(0,), [], "cpu"], ids=repr)
def test_devices_and_outputs_exclude_each_other(target, topology, devices):
    call = _scatter(dense((4, 2)), devices=devices, chunk_sizes=[4])
    text = f"'devices' must not be specified when 'out' is specified, but got devices={devices}"
    refused(call, target, topology, RuntimeError, text)


@clause("comm.scatter.out-refuses-sizes")
@pytest.mark.parametrize("sizes", [[4], []], ids=str)
def test_sizes_and_outputs_exclude_each_other(target, topology, sizes):
    call = _scatter(dense((4, 2)), chunk_sizes=sizes)
    text = (
        f"'chunk_sizes' must not be specified when 'out' is specified, but got chunk_sizes={sizes}"
    )
    refused(call, target, topology, RuntimeError, text)


@clause("comm.scatter.out-refuses-missing-dimension")
@pytest.mark.parametrize("dim", [2, -3])
def test_a_dimension_that_the_tensor_lacks_is_refused(target, topology, dim):
    text = f"Dimension out of range (expected to be in range of [-2, 1], but got {dim})"
    refused(_scatter(dense((9, 9), None), dim=dim), target, topology, IndexError, text)


@clause("comm.scatter.out-refuses-cpu")
@pytest.mark.parametrize("index", [0, 1], ids="index={}".format)
def test_an_output_on_the_cpu_is_refused(target, topology, index):
    out = [dense((1, 2)), dense((1, 2))]
    out[index] = dense((2, 2), None)
    refused(_scatter(*out), target, topology, RuntimeError, CPU_OUT.format(index))


@clause("comm.scatter.out-refuses-wrong-shape")
@pytest.mark.parametrize("shape", [(2, 3), (2,), (1, 4, 2)], ids=str)
@pytest.mark.parametrize("dim", [0, -2])
def test_an_output_of_another_shape_is_refused(target, topology, shape, dim):
    text = SHAPE.format(0, list(shape), 0)
    refused(_scatter(dense(shape), dense((9, 9)), dim=dim), target, topology, RuntimeError, text)


@clause("comm.scatter.out-looks-at-each-in-turn")
def test_a_wrong_shape_is_named_before_a_later_output_on_the_cpu(target, topology):
    call = _scatter(dense((2, 3)), dense((2, 2), None))
    refused(call, target, topology, RuntimeError, SHAPE.format(0, [2, 3], 0))


@clause("comm.scatter.out-refuses-wrong-total")
def test_outputs_that_do_not_hold_the_input_are_refused(target, topology):
    refused(_scatter(dense((1, 2)), dense((2, 2))), target, topology, RuntimeError, TOTAL)


@clause("comm.scatter.out-refuses-leaves")
def test_an_output_that_is_a_leaf_of_the_graph_is_refused(target, topology):
    call = _scatter(dense((4, 2), requires_grad=True))
    text = "a leaf Variable that requires grad is being used in an in-place operation."
    refused(call, target, topology, RuntimeError, text)
