"""comm.scatter with ``out``: filling tensors that the caller provides."""

import pytest
import torch
from hypothesis import given

from spec_tests.harness.compare import checks
from spec_tests.harness.compare.refusals import refused, refused_with_texts
from spec_tests.harness.conformance.clauses import clause
from spec_tests.strategies.calls import PublicCall
from spec_tests.strategies.comm import dense, scatter_out_calls
from spec_tests.strategies.tensors import counting

SHAPE_TEXT = (
    "Output tensor at index {} has incorrect shape: {}. "
    "Expected same shape except for scatter dim {} as the source tensor: [4, 2]"
)
TOTAL_TEXT = (
    "Total size for output tensors along scatter dim 0 does not match the source tensor size at "
    "dim 0. Expected 4, but got total size 3"
)


def _scatter(*out, **options):
    arguments = {"tensor": dense((4, 2)), "out": list(out), **options}
    return PublicCall("comm.scatter", arguments)


@clause("comm.scatter.out-filled")
@given(call=scatter_out_calls())
def test_scatter_fills_and_returns_the_outputs_in_order(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


@clause("comm.scatter.out-differentiable")
@given(call=scatter_out_calls(grads=(True,)))
def test_gradients_of_scatter_outputs_reach_the_input(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


@clause("comm.scatter.out-versions")
def test_scatter_increases_each_output_version_by_one(target, topology):
    tensor = counting((4, 2), torch.float32, topology.device(0))
    outs = [torch.empty((2, 2), device=device) for device in topology.take(2)]
    before = [out._version for out in outs]
    target.comm.scatter(tensor, out=outs)
    assert [out._version for out in outs] == [version + 1 for version in before]


@clause("comm.scatter.out-copies-onto-itself")
def test_scatter_writes_to_an_output_that_is_a_view_of_the_input(target, topology):
    tensor = counting((4, 2), torch.float32, topology.device(0))
    outs = list(tensor.split(2))
    version = tensor._version
    target.comm.scatter(tensor, out=outs)
    assert tensor.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert tensor._version == version + 2


@clause("comm.scatter.out-refuses-none")
@pytest.mark.parametrize("dim", [0, 7], ids=["dim-valid", "dim-invalid"])
def test_scatter_refuses_an_empty_list_of_outputs(target, topology, dim):
    text = "Expected at least one output tensor to scatter to"
    refused(_scatter(dim=dim), target, topology, RuntimeError, text)


@clause("comm.scatter.out-refuses-devices")
@pytest.mark.parametrize("devices", [(0,), [], "cpu"], ids=repr)
def test_devices_together_with_out_are_refused(target, topology, devices):
    call = _scatter(dense((4, 2)), devices=devices, chunk_sizes=[4])
    text = f"'devices' must not be specified when 'out' is specified, but got devices={devices}"
    refused(call, target, topology, RuntimeError, text)


@clause("comm.scatter.out-refuses-sizes")
@pytest.mark.parametrize("sizes", [[4], []], ids=str)
def test_chunk_sizes_together_with_out_are_refused(target, topology, sizes):
    call = _scatter(dense((4, 2)), chunk_sizes=sizes)
    text = (
        f"'chunk_sizes' must not be specified when 'out' is specified, but got chunk_sizes={sizes}"
    )
    refused(call, target, topology, RuntimeError, text)


@clause("comm.scatter.out-refuses-missing-dimension")
@pytest.mark.parametrize("dim", [2, -3])
def test_scatter_with_out_refuses_a_dim_out_of_range(target, topology, dim):
    text = f"Dimension out of range (expected to be in range of [-2, 1], but got {dim})"
    refused(_scatter(dense((9, 9), None), dim=dim), target, topology, IndexError, text)


@clause("comm.scatter.out-refuses-cpu")
@pytest.mark.parametrize("index", [0, 1], ids="index={}".format)
def test_scatter_refuses_an_output_on_the_cpu(target, topology, index):
    out = [dense((1, 2)), dense((1, 2))]
    out[index] = dense((2, 2), None)
    refused_with_texts(_scatter(*out), target, topology, RuntimeError, [f"index {index}"])


@clause("comm.scatter.out-refuses-wrong-shape")
@pytest.mark.parametrize("shape", [(2, 3), (2,), (1, 4, 2)], ids=str)
@pytest.mark.parametrize("dim", [0, -2])
def test_scatter_refuses_an_output_with_another_shape(target, topology, shape, dim):
    text = SHAPE_TEXT.format(0, list(shape), 0)
    refused(_scatter(dense(shape), dense((9, 9)), dim=dim), target, topology, RuntimeError, text)


@clause("comm.scatter.out-looks-at-each-in-turn")
def test_error_names_the_first_of_several_invalid_outputs(target, topology):
    call = _scatter(dense((2, 3)), dense((2, 2), None))
    refused(call, target, topology, RuntimeError, SHAPE_TEXT.format(0, [2, 3], 0))


@clause("comm.scatter.out-refuses-wrong-total")
def test_outputs_with_another_total_extent_are_refused(target, topology):
    refused(_scatter(dense((1, 2)), dense((2, 2))), target, topology, RuntimeError, TOTAL_TEXT)


@clause("comm.scatter.out-refuses-leaves")
def test_scatter_refuses_a_leaf_output_that_requires_grad(target, topology):
    call = _scatter(dense((4, 2), requires_grad=True))
    text = "a leaf Variable that requires grad is being used in an in-place operation."
    refused(call, target, topology, RuntimeError, text)
