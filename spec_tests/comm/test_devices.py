"""comm: spellings of devices, and the current device and streams."""

import pytest
import torch

from spec_tests.harness.compare.refusals import refused
from spec_tests.harness.concurrency.stream_log import streams_of
from spec_tests.harness.conformance.clauses import clause
from spec_tests.strategies.calls import DeviceAt, PublicCall, StreamAt
from spec_tests.strategies.comm import dense
from spec_tests.strategies.tensors import counting

#: For each function that copies to several devices: its arguments except `devices`.
DEVICES_CALLS = {
    "scatter": {"tensor": dense()},
    "broadcast": {"tensor": dense()},
    "broadcast_coalesced": {"tensors": [dense()]},
}
#: For each function that copies to one device: arguments except `destination`, with no tensor on
#: the first device.
DESTINATION_CALLS = {
    "reduce_add": {"inputs": [dense(slot=1), dense(slot=2)]},
    "reduce_add_coalesced": {"inputs": [[dense(slot=1)], [dense(slot=2)]]},
    "gather": {"tensors": [dense(slot=1), dense(slot=2)]},
}
#: For each function that copies to one device: arguments except `destination`, with a tensor on
#: the first device.
FIRST_DEVICE_CALLS = {
    "reduce_add": {"inputs": [dense(), dense(slot=1)]},
    "reduce_add_coalesced": {"inputs": [[dense()], [dense(slot=1)]]},
    "gather": {"tensors": [dense(), dense(slot=1)]},
}
CPU_TEXT = "Expected a non cpu device, but got: cpu"
NO_INDEX_TEXT = "Expected a torch.device with a specified index or an integer, but got:{}"


@clause("comm.devices.spellings")
@pytest.mark.parametrize("name", DEVICES_CALLS)
def test_device_may_be_an_ordinal_a_string_or_a_torch_device(target, topology, name):
    devices = [DeviceAt(0, "ordinal"), DeviceAt(1, "text")]
    call = PublicCall(f"comm.{name}", {**DEVICES_CALLS[name], "devices": devices})
    rows = call.run(target, call.inputs(topology))
    found = [row[0] if isinstance(row, list) else row for row in rows]
    assert [tensor.device for tensor in found] == topology.take(2)


@clause("comm.devices.spellings")
@pytest.mark.parametrize("name", DESTINATION_CALLS)
def test_destination_may_be_an_ordinal_a_string_or_a_torch_device(target, topology, name):
    arguments = {**DESTINATION_CALLS[name], "destination": DeviceAt(2, "ordinal")}
    call = PublicCall(f"comm.{name}", arguments)
    result = call.run(target, call.inputs(topology))
    found = result[0] if isinstance(result, tuple) else result
    assert found.device == topology.device(2)


@clause("comm.devices.whichever-is-current")
@pytest.mark.parametrize("name", DEVICES_CALLS)
def test_ordinal_in_devices_does_not_depend_on_the_current_device(target, topology, name):
    devices = [DeviceAt(0, "ordinal"), DeviceAt(1, "ordinal")]
    call = PublicCall(f"comm.{name}", {**DEVICES_CALLS[name], "devices": devices})
    inputs = call.inputs(topology)
    with torch.accelerator.device_index(topology.device(1).index):
        rows = call.run(target, inputs)
    found = [row[0] if isinstance(row, list) else row for row in rows]
    assert [tensor.device for tensor in found] == topology.take(2)


@clause("comm.devices.whichever-is-current")
@pytest.mark.parametrize("name", FIRST_DEVICE_CALLS)
def test_ordinal_destination_does_not_depend_on_the_current_device(target, topology, name):
    call = PublicCall(
        f"comm.{name}", {**FIRST_DEVICE_CALLS[name], "destination": DeviceAt(0, "ordinal")}
    )
    inputs = call.inputs(topology)
    with torch.accelerator.device_index(topology.device(1).index):
        result = call.run(target, inputs)
    found = result[0] if isinstance(result, tuple) else result
    assert found.device == topology.device(0)


@clause("comm.devices.refuses-cpu")
@pytest.mark.parametrize("name", DEVICES_CALLS)
@pytest.mark.parametrize("cpu", ["cpu", torch.device("cpu")], ids=repr)
def test_cpu_is_refused_in_devices(target, topology, name, cpu):
    call = PublicCall(f"comm.{name}", {**DEVICES_CALLS[name], "devices": [DeviceAt(0), cpu]})
    refused(call, target, topology, ValueError, CPU_TEXT)


@clause("comm.devices.refuses-cpu")
@pytest.mark.parametrize("name", ["reduce_add", "reduce_add_coalesced"])
@pytest.mark.parametrize("cpu", ["cpu", torch.device("cpu")], ids=repr)
def test_cpu_is_refused_as_the_destination_of_a_sum(target, topology, name, cpu):
    call = PublicCall(f"comm.{name}", {**DESTINATION_CALLS[name], "destination": cpu})
    refused(call, target, topology, ValueError, CPU_TEXT)


@clause("comm.devices.refuses-no-index")
@pytest.mark.parametrize("name", DEVICES_CALLS)
@pytest.mark.parametrize("spelling", [str, torch.device], ids=["text", "device"])
def test_device_without_index_is_refused_in_devices(target, topology, name, spelling):
    devices = [DeviceAt(0), spelling(topology.accelerator)]
    call = PublicCall(f"comm.{name}", {**DEVICES_CALLS[name], "devices": devices})
    refused(call, target, topology, ValueError, NO_INDEX_TEXT.format(topology.accelerator))


@clause("comm.devices.current-device-kept")
@pytest.mark.parametrize("current", [0, 1], ids="slot={}".format)
@pytest.mark.parametrize("name", DEVICES_CALLS)
def test_copying_does_not_change_the_current_device(target, topology, name, current):
    call = PublicCall(
        f"comm.{name}", {**DEVICES_CALLS[name], "devices": [DeviceAt(0), DeviceAt(2), DeviceAt(3)]}
    )
    ordinal = topology.device(current).index
    with torch.accelerator.device_index(ordinal):
        call.run(target, call.inputs(topology))
        assert torch.accelerator.current_device_index() == ordinal


@clause("comm.devices.current-device-kept")
@pytest.mark.parametrize("name", DESTINATION_CALLS)
def test_joining_does_not_change_the_current_device(target, topology, name):
    arguments = {**DESTINATION_CALLS[name], "destination": DeviceAt(2)}
    call = PublicCall(f"comm.{name}", arguments)
    ordinal = topology.device(0).index
    with torch.accelerator.device_index(ordinal):
        call.run(target, call.inputs(topology))
        assert torch.accelerator.current_device_index() == ordinal


@clause("comm.devices.current-streams")
@pytest.mark.parametrize("name", DEVICES_CALLS)
def test_copies_run_on_the_current_stream_of_the_destination(target, topology, name):
    topology.require(distinct=2)
    topology.require_copies()
    call = PublicCall(
        f"comm.{name}", {**DEVICES_CALLS[name], "devices": [DeviceAt(0), DeviceAt(1)]}
    )
    inputs = call.inputs(topology)
    with StreamAt(1).build(topology) as stream:
        used = streams_of(lambda: call.run(target, inputs))
    assert {used_stream.stream_id for used_stream in used} == {stream.stream_id}


@clause("comm.devices.any-dtype")
@pytest.mark.parametrize("name", DEVICES_CALLS)
@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64], ids=str)
def test_wide_unsigned_integers_are_copied_unchanged(target, topology, name, dtype):
    topology.require_copies()
    tensor = counting((4, 3), dtype, topology.device(0))
    argument = [tensor] if name == "broadcast_coalesced" else tensor
    devices = topology.take(1 if name == "scatter" else 2)
    last = getattr(target.comm, name)(argument, devices)[-1]
    found = last[0] if isinstance(last, list) else last
    assert (found.dtype, found.tolist()) == (dtype, tensor.tolist())
