"""Empty calls, repeated devices and error texts of comm: CO-3, CO-4 and CO-5."""

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from spec_tests.harness.compare import checks
from spec_tests.harness.compare.outcome import failure_of
from spec_tests.harness.conformance.clauses import clause
from spec_tests.harness.environment.topology import not_run
from spec_tests.oracle.tensors import address_ranges, find_overlaps
from spec_tests.strategies.calls import PublicCall
from spec_tests.strategies.comm import BUFFER_SIZES, dense
from spec_tests.strategies.tensors import counting

SCALARS = [dense(()), dense((), slot=1)]
DIMENSION_TEXT = "at least one dimension"
#: Name of a call -> its function, its arguments, and a part of the text of the error.
EMPTY = {
    "broadcast_coalesced": (
        "broadcast_coalesced",
        {"tensors": [dense()], "devices": []},
        "at least one device",
    ),
    "reduce_add": ("reduce_add", {"inputs": []}, "at least one tensor"),
    "gather": ("gather", {"tensors": SCALARS}, DIMENSION_TEXT),
    "gather-out": ("gather", {"tensors": SCALARS, "out": dense((2,))}, DIMENSION_TEXT),
    "scatter-out": ("scatter", {"tensor": dense(()), "out": [dense(())]}, DIMENSION_TEXT),
}
#: Calls for which the reference raises no error on CUDA: it reads past the end of an empty list.
UNDEFINED = ("broadcast_coalesced", "scatter-out")


@clause("divergences.CO-3.nothing-given")
@pytest.mark.parametrize("name", EMPTY)
def test_calls_without_devices_tensors_or_dimensions_raise_value_errors(target, topology, name):
    if name in UNDEFINED and (target.name, topology.accelerator) == ("torch.nn.parallel", "cuda"):
        not_run("undefined behaviour of the reference, which may crash the run")
    function, arguments, text = EMPTY[name]
    call = PublicCall(f"comm.{function}", arguments)
    with pytest.raises(ValueError, match=text):
        call.run(target, call.inputs(topology))


@clause("divergences.CO-4.repeated-devices-get-copies")
@example(count=1, buffer_size=BUFFER_SIZES[0])
@given(count=st.integers(1, 4), buffer_size=st.sampled_from(BUFFER_SIZES))
def test_broadcast_coalesced_copies_for_repeated_devices(target, topology, count, buffer_size):
    device = topology.device(0)
    tensors = [counting((2, 2), torch.float32, device) for _ in range(count)]
    first, *others = target.comm.broadcast_coalesced(tensors, [device] * 3, buffer_size)
    assert [id(tensor) for tensor in first] == [id(tensor) for tensor in tensors]
    assert find_overlaps(address_ranges([tensors, others])) == []


@clause("divergences.CO-4.repeated-devices-get-copies")
def test_broadcast_function_copies_for_a_repeated_device(target, topology):
    tensor = counting((2, 2), torch.float32, topology.device(0)).requires_grad_()
    devices = [topology.device(0)] * 2
    _, copy = target.functions.Broadcast.apply(devices, tensor)
    assert find_overlaps(address_ranges([tensor, copy])) == []


def _cpu_chunk_error(target, topology, index, **options):
    """Return the error of gather if chunk number ``index`` is on the CPU."""
    chunks = [dense(), dense()]
    chunks[index] = dense(slot=None)
    call = PublicCall("comm.gather", {"tensors": chunks, **options})
    with pytest.raises(RuntimeError) as caught:
        call.run(target, call.inputs(topology))
    return failure_of(caught.value)


@clause("divergences.CO-5.one-text")
@pytest.mark.parametrize("index", [0, 1], ids="index={}".format)
def test_error_for_a_cpu_chunk_is_the_same_with_and_without_out(target, topology, index):
    without_out = _cpu_chunk_error(target, topology, index)
    with_out = _cpu_chunk_error(target, topology, index, out=dense((8, 3)))
    checks.same(without_out, with_out)
