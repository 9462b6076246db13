"""comm: spellings of devices, the current device and streams, and devices without memory."""

import pytest
import torch

from spec_tests import checks
from spec_tests.checks.nested_values import tensors
from spec_tests.checks.refusals import refused
from spec_tests.checks.stream_log import current_device_and_streams, streams_of
from spec_tests.machine.clauses import clause, error_of
from spec_tests.strategies.calls import DeviceAt, KeywordCall, StreamAt
from spec_tests.strategies.comm import dense
from spec_tests.strategies.tensors import counting

#: For each function: its arguments, given the devices of a list, or first the destination.
CALLS = {
    "scatter": lambda *devices: {"tensor": dense(), "devices": [*devices]},
    "broadcast": lambda *devices: {"tensor": dense(), "devices": [*devices]},
    "broadcast_coalesced": lambda *devices: {"tensors": [dense()], "devices": [*devices]},
    "reduce_add": lambda device, *_: {"inputs": [dense(), dense(slot=1)], "destination": device},
    "reduce_add_coalesced": lambda device, *_: {
        "inputs": [[dense()], [dense(slot=1)]],
        "destination": device,
    },
    "gather": lambda device, *_: {"tensors": [dense(slot=1), dense()], "destination": device},
}
#: The functions with an argument ``devices``.
COPYING = ("scatter", "broadcast", "broadcast_coalesced")


def _call(name, *devices):
    return KeywordCall(f"comm.{name}", CALLS[name](*devices))


def _check_devices(name, spellings, target, topology):
    """Fail unless the results are on the first two devices, or the result on the first one."""
    call = _call(name, *(DeviceAt(slot, spelling) for slot, spelling in enumerate(spellings)))
    results = tensors(call.run(target, call.inputs(topology)), "")
    found = [tensor.device for _, tensor in results]
    checks.same(found, topology.take(2 if name in COPYING else 1), call)


@clause("comm.devices.spellings")
@pytest.mark.parametrize("spellings", [("ordinal", "text"), ("text", "device")], ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_device_may_be_an_ordinal_a_string_or_a_torch_device(target, topology, name, spellings):
    _check_devices(name, spellings, target, topology)


@clause("comm.devices.whichever-is-current")
@pytest.mark.parametrize("name", CALLS)
def test_ordinal_does_not_depend_on_the_current_device(target, topology, name):
    topology.require(distinct=2)
    with torch.accelerator.device_index(topology.device(1).index):
        _check_devices(name, ["ordinal", "ordinal"], target, topology)


@clause("comm.devices.refuses-cpu")
@pytest.mark.parametrize("name", [name for name in CALLS if name != "gather"])
@pytest.mark.parametrize("cpu", ["cpu", torch.device("cpu")], ids=repr)
def test_cpu_is_refused(target, topology, name, cpu):
    first = DeviceAt(0) if name in COPYING else cpu
    refused(_call(name, first, cpu), target, topology, error_of("comm.devices.refuses-cpu"))


@clause("comm.devices.refuses-no-index")
@pytest.mark.parametrize("name", COPYING)
@pytest.mark.parametrize("spelling", [str, torch.device], ids=["text", "device"])
def test_device_without_index_is_refused_in_devices(target, topology, name, spelling):
    call = _call(name, DeviceAt(0), spelling(topology.accelerator))
    error = error_of("comm.devices.refuses-no-index", device=topology.accelerator)
    refused(call, target, topology, error)


@clause("comm.devices.current-device-kept")
@pytest.mark.parametrize("current", [0, 1], ids="slot={}".format)
@pytest.mark.parametrize("name", CALLS)
def test_call_does_not_change_the_current_device(target, topology, name, current):
    topology.require(distinct=2)
    call = _call(name, DeviceAt(0), DeviceAt(2), DeviceAt(3))
    ordinal = topology.device(current).index
    with torch.accelerator.device_index(ordinal):
        call.run(target, call.inputs(topology))
        assert torch.accelerator.current_device_index() == ordinal


@clause("comm.devices.current-streams")
@pytest.mark.parametrize("name", COPYING)
def test_copies_run_on_the_current_stream_of_the_destination(target, topology, name):
    topology.require(distinct=2)
    topology.require_copies()
    call = _call(name, DeviceAt(0), DeviceAt(1))
    inputs = call.inputs(topology)
    with StreamAt(1).build(topology) as stream:
        used = streams_of(lambda: call.run(target, inputs))
    checks.same({used_stream.stream_id for used_stream in used}, {stream.stream_id})


@clause("comm.devices.any-dtype")
@pytest.mark.parametrize("name", COPYING)
@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64], ids=str)
def test_wide_unsigned_integers_are_copied_unchanged(target, topology, name, dtype):
    topology.require_copies()
    tensor = counting((4, 3), dtype, topology.device(0))
    argument = [tensor] if name == "broadcast_coalesced" else tensor
    devices = topology.take(1 if name == "scatter" else 2)
    last = getattr(target.comm, name)(argument, devices)[-1]
    found = last[0] if isinstance(last, list) else last
    checks.same((found.dtype, found.tolist()), (dtype, tensor.tolist()))


@clause("comm.no-memory")
@pytest.mark.parametrize("name", CALLS)
def test_out_of_memory_error_is_raised_and_the_next_call_works(target, topology, name):
    topology.require(distinct=3)
    full = 2 if name in COPYING else 0
    call = _call(name, DeviceAt(0), DeviceAt(2))
    inputs = call.inputs(topology)
    with torch.accelerator.device_index(topology.device(1).index):
        before = current_device_and_streams(topology)
        for _ in range(2):
            with topology.fail_allocations(full), pytest.raises(torch.OutOfMemoryError):
                call.run(target, inputs)
            assert current_device_and_streams(topology) == before
            call.run(target, inputs)  # Allocations succeed again.
