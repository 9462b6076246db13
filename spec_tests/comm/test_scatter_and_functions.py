"""comm.scatter and functions.Scatter: views of the input and refused calls."""

from itertools import chain

import pytest

from spec_tests.harness.compare.refusals import refused
from spec_tests.harness.conformance.clauses import cases, clause
from spec_tests.strategies.calls import ApplyCall, DeviceAt, PublicCall
from spec_tests.strategies.comm import dense

SAME_DEVICE = (DeviceAt(0), DeviceAt(0))
TENSOR = dense((4, 2))


def _comm_scatter(tensor=TENSOR, devices=SAME_DEVICE, chunk_sizes=None, dim=0):
    arguments = {"tensor": tensor, "devices": devices, "chunk_sizes": chunk_sizes, "dim": dim}
    return PublicCall("comm.scatter", arguments)


def _function_scatter(tensor=TENSOR, devices=SAME_DEVICE, chunk_sizes=None, dim=0):
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


RANGE_TEXT = "Dimension out of range (expected to be in range of [-2, 1], but got {})"
#: Clause about comm.scatter -> arguments, each with the class and the text of the error.
REFUSED = {
    "comm.scatter.refuses-no-devices": [
        (
            {"tensor": tensor, "devices": [], "chunk_sizes": sizes, "dim": dim},
            RuntimeError,
            "Expected at least one device to scatter to",
        )
        for tensor in (TENSOR, dense((4, 2), slot=None))
        for sizes in (None, [], [4])
        for dim in (0, 7)
    ],
    "comm.scatter.refuses-other-count": [
        (
            {"chunk_sizes": [4], "dim": dim},
            RuntimeError,
            "Expected devices and chunk_sizes to be of same length, "
            "but got len(devices) = 2 and len(chunk_sizes) = 1",
        )
        for dim in (0, 7)
    ],
    "comm.scatter.refuses-scalars": [
        (
            {"tensor": dense(()), "chunk_sizes": sizes, "dim": dim},
            RuntimeError,
            f"{verb} expects at least a 1-dimensional tensor",
        )
        for sizes, verb in ((None, "chunk"), ([1, 0], "split"))
        for dim in (0, -1)
    ],
    "comm.scatter.refuses-missing-dimension": [
        ({"chunk_sizes": sizes, "dim": dim}, IndexError, RANGE_TEXT.format(dim))
        for sizes in (None, [2, 2], [9, 9])
        for dim in (2, -3)
    ],
    "comm.scatter.refuses-negative-sizes": [
        (
            {"chunk_sizes": [-1, 5]},
            RuntimeError,
            "split_with_sizes expects split_sizes have only non-negative entries, "
            "but got split_sizes=[-1, 5]",
        )
    ],
    "comm.scatter.refuses-wrong-total": [
        (
            {"chunk_sizes": [2, 1], "dim": dim},
            RuntimeError,
            "split_with_sizes expects split_sizes to sum exactly to 4 "
            "(input tensor's size at dimension 0), but got split_sizes=[2, 1]",
        )
        for dim in (0, -2)
    ],
    "comm.scatter.refuses-negative-ordinal": [
        (
            {"devices": [DeviceAt(0), -1]},
            RuntimeError,
            "Expected non-negative device index, but got -1",
        )
    ],
}


@cases("arguments, error, text", REFUSED)
def test_comm_scatter_refuses_the_arguments(target, topology, arguments, error, text):
    refused(_comm_scatter(**arguments), target, topology, error, text)


@clause("functions.scatter.refuses-like-comm")
@pytest.mark.parametrize(("arguments", "error", "text"), list(chain(*REFUSED.values())))
def test_scatter_function_refuses_the_arguments(target, topology, arguments, error, text):
    refused(_function_scatter(**arguments), target, topology, error, text)
