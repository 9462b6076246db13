"""comm.scatter and functions.Scatter: views of the input and refused calls."""

import pytest

from spec_tests.harness.compare.refusals import refused
from spec_tests.harness.conformance.clauses import cases
from spec_tests.strategies.calls import ApplyCall, DeviceAt, PublicCall
from spec_tests.strategies.comm import dense

SAME_DEVICE = (DeviceAt(0), DeviceAt(0))


def _comm_scatter(tensor, devices=SAME_DEVICE, chunk_sizes=None, dim=0):
    arguments = {"tensor": tensor, "devices": devices, "chunk_sizes": chunk_sizes, "dim": dim}
    return PublicCall("comm.scatter", arguments)


def _function_scatter(tensor, devices=SAME_DEVICE, chunk_sizes=None, dim=0):
    return ApplyCall("Scatter", (devices, chunk_sizes, dim), (tensor,))


@cases(
    "scatter",
    {
        "comm.scatter.own-device-views": [_comm_scatter],
        "functions.scatter.own-device-views": [_function_scatter],
    },
)
def test_chunk_on_the_input_device_shares_memory_and_version(target, topology, scatter):
    call = scatter(dense((4, 2)))
    inputs = call.inputs(topology)
    (tensor,) = [inputs["tensor"]] if "tensor" in inputs else inputs["tensors"]
    first, second = call.run(target, inputs)
    second.fill_(-1)
    assert tensor[2:].tolist() == [[-1, -1]] * 2
    assert first._version == second._version == tensor._version > 0


@cases(
    "scatter",
    {
        "comm.scatter.views-refuse-in-place": [_comm_scatter],
        "functions.scatter.views-refuse-in-place": [_function_scatter],
    },
)
def test_view_of_an_input_that_requires_grad_refuses_in_place_writes(target, topology, scatter):
    call = scatter(dense((4, 3), requires_grad=True))
    chunk, _ = call.run(target, call.inputs(topology))
    with pytest.raises(RuntimeError, match="returns multiple views"):
        chunk.zero_()


@cases(
    "scatter",
    {
        "comm.scatter.refuses-no-devices": [_comm_scatter],
        "functions.scatter.refuses-like-comm": [_function_scatter],
    },
)
@pytest.mark.parametrize("slot", [0, None], ids=["accelerator", "cpu"])
@pytest.mark.parametrize("chunk_sizes", [None, [], [4]], ids="sizes={}".format)
@pytest.mark.parametrize("dim", [0, 7], ids=["dim-valid", "dim-invalid"])
def test_scatter_to_an_empty_device_list_is_refused(
    target, topology, scatter, slot, chunk_sizes, dim
):
    call = scatter(dense((4, 2), slot=slot), devices=[], chunk_sizes=chunk_sizes, dim=dim)
    text = "Expected at least one device to scatter to"
    refused(call, target, topology, RuntimeError, text)


@cases(
    "scatter",
    {
        "comm.scatter.refuses-scalars": [_comm_scatter],
        "functions.scatter.refuses-like-comm": [_function_scatter],
    },
)
@pytest.mark.parametrize(
    ("chunk_sizes", "verb"), [(None, "chunk"), ([1, 0], "split")], ids=["even", "sizes"]
)
@pytest.mark.parametrize("dim", [0, -1], ids="dim={}".format)
def test_scatter_of_a_scalar_is_refused(target, topology, scatter, chunk_sizes, verb, dim):
    call = scatter(dense(()), chunk_sizes=chunk_sizes, dim=dim)
    text = f"{verb} expects at least a 1-dimensional tensor"
    refused(call, target, topology, RuntimeError, text)


@cases(
    "scatter",
    {
        "comm.scatter.refuses-negative-ordinal": [_comm_scatter],
        "functions.scatter.refuses-like-comm": [_function_scatter],
    },
)
def test_negative_ordinal_is_refused_for_a_copied_chunk(target, topology, scatter):
    call = scatter(dense((4, 2)), devices=[DeviceAt(0), -1])
    text = "Expected non-negative device index, but got -1"
    refused(call, target, topology, RuntimeError, text)
