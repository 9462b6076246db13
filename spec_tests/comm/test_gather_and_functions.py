"""comm.gather and functions.Gather: memory and strides of the result, and refused calls."""

import pytest

from spec_tests.harness.compare import checks
from spec_tests.harness.compare.refusals import refused
from spec_tests.harness.conformance.clauses import clause
from spec_tests.strategies.calls import ApplyCall, DeviceAt, PublicCall
from spec_tests.strategies.comm import dense
from spec_tests.strategies.tensors import TensorSpec

DEVICE = DeviceAt(0)


def _comm_gather(*chunks, destination=DEVICE, dim=0):
    arguments = {"tensors": list(chunks), "dim": dim, "destination": destination}
    return PublicCall("comm.gather", arguments)


def _comm_gather_out(*chunks, dim=0):
    arguments = {"tensors": list(chunks), "dim": dim, "out": dense((8, 3))}
    return PublicCall("comm.gather", arguments)


def _function_gather(*chunks, destination=DEVICE, dim=0):
    return ApplyCall("Gather", (destination, dim), chunks)


@pytest.mark.parametrize(
    ("gather", "requires_grad"),
    [
        pytest.param(_comm_gather, False, marks=clause("comm.gather.always-new"), id="comm"),
        pytest.param(
            _function_gather, False, marks=clause("functions.gather.always-new"), id="functions"
        ),
        pytest.param(
            _function_gather,
            True,
            marks=clause("functions.gather.always-new"),
            id="functions-requires-grad",
        ),
    ],
)
@pytest.mark.parametrize("count", [1, 2], ids="chunks={}".format)
def test_result_shares_no_memory_with_chunks_or_the_next_result(
    target, topology, gather, requires_grad, count
):
    call = gather(*[dense((2, 2), requires_grad=requires_grad)] * count)
    inputs = call.inputs(topology)
    result = call.run(target, inputs).detach().fill_(-1)
    call.run(target, inputs)
    assert bool((result == -1).all())
    assert [chunk.tolist() for chunk in inputs["tensors"]] == [[[0, 1], [2, 3]]] * count


@pytest.mark.parametrize(
    ("gather", "requires_grad"),
    [
        pytest.param(
            _comm_gather, False, marks=clause("comm.gather.keeps-channels-last"), id="comm"
        ),
        pytest.param(
            _function_gather,
            True,
            marks=clause("functions.gather.keeps-channels-last"),
            id="functions",
        ),
    ],
)
@pytest.mark.parametrize("shape", [(2, 3, 2, 2), (2, 3, 2, 2, 2)], ids=["images", "volumes"])
@pytest.mark.parametrize("dim", [0, 1, -1], ids="dim={}".format)
def test_channels_last_chunks_make_a_channels_last_result(
    target, baselines, topology, gather, requires_grad, shape, dim
):
    chunks = [
        TensorSpec(shape, layout="channels_last", requires_grad=requires_grad, slot=slot)
        for slot in (0, 1)
    ]
    checks.agree(gather(*chunks, dim=dim), target, baselines, topology)


@pytest.mark.parametrize(
    "gather",
    [
        pytest.param(_comm_gather, marks=clause("comm.gather.minus-one-is-the-cpu"), id="comm"),
        pytest.param(
            _function_gather, marks=clause("functions.gather.minus-one-is-the-cpu"), id="functions"
        ),
    ],
)
def test_destination_minus_one_is_the_cpu_with_a_warning(target, baselines, topology, gather):
    call = gather(dense(), dense(), destination=-1)
    checks.agree(call, target, baselines, topology)
    with pytest.warns(FutureWarning, match="Using -1 to represent CPU tensor is deprecated"):
        joined = call.run(target, call.inputs(topology))
    assert joined.device.type == "cpu"


@pytest.mark.parametrize(
    "gather",
    [
        pytest.param(_comm_gather, marks=clause("comm.gather.refuses-other-shapes"), id="comm"),
        pytest.param(
            _comm_gather_out, marks=clause("comm.gather.out-refuses-other-chunks"), id="comm-out"
        ),
        pytest.param(
            _function_gather, marks=clause("functions.gather.refuses-other-shapes"), id="functions"
        ),
    ],
)
@pytest.mark.parametrize(("dim", "expected"), [(0, [2, 3]), (-1, [4, 5])], ids=["0", "-1"])
def test_chunk_with_another_shape_is_refused(target, topology, gather, dim, expected):
    text = f"Input tensor at index 1 has invalid shape [2, 5], but expected {expected}"
    refused(gather(dense(), dense((2, 5)), dim=dim), target, topology, RuntimeError, text)


@pytest.mark.parametrize(
    "gather",
    [
        pytest.param(
            _comm_gather, marks=clause("comm.gather.refuses-other-dimensions"), id="comm"
        ),
        pytest.param(
            _comm_gather_out, marks=clause("comm.gather.out-refuses-other-chunks"), id="comm-out"
        ),
        pytest.param(
            _function_gather, marks=clause("functions.gather.refuses-other-shapes"), id="functions"
        ),
    ],
)
@pytest.mark.parametrize("shape", [(4,), (4, 3, 1)], ids=str)
def test_chunk_with_another_number_of_dimensions_is_refused(target, topology, gather, shape):
    text = (
        "Expected all input tensors to have the same number of dimensions, "
        f"but tensor at index 1 has {len(shape)} dimensions, (expected 2)"
    )
    refused(gather(dense(), dense(shape)), target, topology, RuntimeError, text)
