"""comm.gather and functions.Gather: memory and strides of the result, and refused calls."""

import pytest
import torch

from spec_tests.harness.compare import checks
from spec_tests.harness.compare.refusals import refused
from spec_tests.harness.conformance.clauses import cases
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


@cases(
    "gather, requires_grad",
    {
        "comm.gather.always-new": [(_comm_gather, False)],
        "functions.gather.always-new": [(_function_gather, False), (_function_gather, True)],
    },
)
@pytest.mark.parametrize("count", [1, 2], ids="chunks={}".format)
def test_result_shares_no_memory_with_chunks_or_the_next_result(
    target, topology, gather, requires_grad, count
):
    call = gather(*[dense((2, 2), requires_grad=requires_grad)] * count)
    inputs = call.inputs(topology)
    with torch.set_grad_enabled(requires_grad):  # a target may keep results without a gradient
        result = call.run(target, inputs).detach().fill_(-1)
        call.run(target, inputs)
    assert bool((result == -1).all())
    assert [chunk.tolist() for chunk in inputs["tensors"]] == [[[0, 1], [2, 3]]] * count


@cases(
    "gather, requires_grad",
    {
        "comm.gather.keeps-channels-last": [(_comm_gather, False)],
        "functions.gather.keeps-channels-last": [(_function_gather, True)],
    },
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


@cases(
    "gather",
    {
        "comm.gather.minus-one-is-the-cpu": [_comm_gather],
        "functions.gather.minus-one-is-the-cpu": [_function_gather],
    },
)
def test_destination_minus_one_is_the_cpu_with_a_warning(target, baselines, topology, gather):
    call = gather(dense(), dense(), destination=-1)
    checks.agree(call, target, baselines, topology)
    with pytest.warns(FutureWarning, match="Using -1 to represent CPU tensor is deprecated"):
        joined = call.run(target, call.inputs(topology))
    assert joined.device.type == "cpu"


@cases(
    "gather",
    {
        "comm.gather.current-device": [_comm_gather],
        "functions.gather.current-device": [_function_gather],
    },
)
@pytest.mark.parametrize("slot", [0, 1], ids="slot={}".format)
@pytest.mark.parametrize("spelling", ["None", "string", "device"])
def test_destination_without_index_is_the_current_device(target, topology, gather, slot, spelling):
    kind = topology.accelerator
    destination = {"None": None, "string": kind, "device": torch.device(kind)}[spelling]
    call = gather(dense(), dense(slot=1), destination=destination)
    with torch.accelerator.device_index(topology.device(slot).index):
        joined = call.run(target, call.inputs(topology))
    assert joined.device == topology.device(slot)


@cases(
    "gather",
    {
        "comm.gather.refuses-other-shapes": [_comm_gather],
        "comm.gather.out-refuses-other-chunks": [_comm_gather_out],
        "functions.gather.refuses-other-shapes": [_function_gather],
    },
)
@pytest.mark.parametrize(("dim", "expected"), [(0, [2, 3]), (-1, [4, 5])], ids=["0", "-1"])
def test_chunk_with_another_shape_is_refused(target, topology, gather, dim, expected):
    text = f"Input tensor at index 1 has invalid shape [2, 5], but expected {expected}"
    refused(gather(dense(), dense((2, 5)), dim=dim), target, topology, RuntimeError, text)


@cases(
    "gather",
    {
        "comm.gather.refuses-other-dimensions": [_comm_gather],
        "comm.gather.out-refuses-other-chunks": [_comm_gather_out],
        "functions.gather.refuses-other-shapes": [_function_gather],
    },
)
@pytest.mark.parametrize("shape", [(4,), (4, 3, 1)], ids=str)
def test_chunk_with_another_number_of_dimensions_is_refused(target, topology, gather, shape):
    text = (
        "Expected all input tensors to have the same number of dimensions, "
        f"but tensor at index 1 has {len(shape)} dimensions, (expected 2)"
    )
    refused(gather(dense(), dense(shape)), target, topology, RuntimeError, text)
