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

NO_DEVICES = PublicCall("comm.broadcast_coalesced", {"tensors": [dense()], "devices": []})
NO_INPUT = PublicCall("comm.reduce_add", {"inputs": []})
SCALARS = [dense(()), dense((), slot=1)]
NO_DIMENSION = {
    "gather": PublicCall("comm.gather", {"tensors": SCALARS}),
    "gather-out": PublicCall("comm.gather", {"tensors": SCALARS, "out": dense((2,))}),
    "scatter-out": PublicCall("comm.scatter", {"tensor": dense(()), "out": [dense(())]}),
}
#: Calls for which the reference raises no error on CUDA: it reads past the end of an empty list.
UNDEFINED = ("broadcast_coalesced", "scatter-out")


def _require_defined(target, topology, name):
    if name in UNDEFINED and (target.name, topology.accelerator) == ("torch.nn.parallel", "cuda"):
        not_run("undefined behaviour of the reference, which may crash the run")


@clause("divergences.CO-3.nothing-given")
def test_empty_device_list_raises_value_error(target, topology):
    _require_defined(target, topology, "broadcast_coalesced")
    with pytest.raises(ValueError, match="at least one device"):
        NO_DEVICES.run(target, NO_DEVICES.inputs(topology))


@clause("divergences.CO-3.nothing-given")
def test_empty_input_list_raises_value_error(target, topology):
    with pytest.raises(ValueError, match="at least one tensor"):
        NO_INPUT.run(target, NO_INPUT.inputs(topology))


@clause("divergences.CO-3.nothing-given")
@pytest.mark.parametrize("name", NO_DIMENSION)
def test_tensors_without_dimensions_raise_value_error(target, topology, name):
    _require_defined(target, topology, name)
    with pytest.raises(ValueError, match="at least one dimension"):
        NO_DIMENSION[name].run(target, NO_DIMENSION[name].inputs(topology))


def _copies(target, topology, count, buffer_size):
    tensors = [counting((2, 2), torch.float32, topology.device(0)) for _ in range(count)]
    devices = [topology.device(0)] * 3
    return tensors, target.comm.broadcast_coalesced(tensors, devices, buffer_size)


@clause("divergences.CO-4.repeated-devices-get-copies")
@example(count=1, buffer_size=BUFFER_SIZES[0])
@given(count=st.integers(1, 4), buffer_size=st.sampled_from(BUFFER_SIZES))
def test_broadcast_coalesced_copies_for_repeated_devices(target, topology, count, buffer_size):
    tensors, (first, *others) = _copies(target, topology, count, buffer_size)
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
