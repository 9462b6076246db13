"""How callers of comm may write a device, and which device is current afterwards."""

import inspect

import pytest
import torch

from spec_tests.harness.compare.refusals import refused
from spec_tests.harness.concurrency.stream_log import streams_of
from spec_tests.harness.conformance.clauses import clause
from spec_tests.strategies.calls import DeviceAt, PublicCall, StreamAt
from spec_tests.strategies.comm import dense
from spec_tests.strategies.tensors import counting

TO_DEVICES = {
    "scatter": {"tensor": dense()},
    "broadcast": {"tensor": dense()},
    "broadcast_coalesced": {"tensors": [dense()]},
}
TO_DESTINATION = {
    "reduce_add": {"inputs": [dense(slot=1), dense(slot=2)]},
    "reduce_add_coalesced": {"inputs": [[dense(slot=1)], [dense(slot=2)]]},
    "gather": {"tensors": [dense(slot=1), dense(slot=2)]},
}
TO_FIRST = {
    "reduce_add": {"inputs": [dense(), dense(slot=1)]},
    "reduce_add_coalesced": {"inputs": [[dense()], [dense(slot=1)]]},
    "gather": {"tensors": [dense(), dense(slot=1)]},
}
CPU = "Expected a non cpu device, but got: cpu"
NO_INDEX = "Expected a torch.device with a specified index or an integer, but got:{}"


def _signature(function):
    parameters = inspect.signature(function).parameters.values()
    return [(each.name, each.kind, each.default) for each in parameters]


@clause("comm.signatures")
@pytest.mark.parametrize("name", [*TO_DEVICES, *TO_DESTINATION])
def test_each_function_has_the_documented_parameters(target, answers, name):
    found, *expected = [_signature(getattr(part.comm, name)) for part in (target, *answers)]
    assert expected == [found] * len(answers)


@clause("comm.devices.spellings")
@pytest.mark.parametrize("spelling", ["device", "ordinal", "text"])
@pytest.mark.parametrize("name", TO_DEVICES)
def test_a_device_may_be_an_ordinal_a_text_or_a_device(target, topology, name, spelling):
    devices = [DeviceAt(0, spelling), DeviceAt(1, spelling)]
    call = PublicCall(f"comm.{name}", {**TO_DEVICES[name], "devices": devices})
    rows = call.run(target, call.inputs(topology))
    found = [row[0] if isinstance(row, list) else row for row in rows]
    assert [tensor.device for tensor in found] == topology.take(2)


@clause("comm.devices.spellings")
@pytest.mark.parametrize("spelling", ["device", "ordinal", "text"])
@pytest.mark.parametrize("name", TO_DESTINATION)
def test_a_destination_may_be_an_ordinal_a_text_or_a_device(target, topology, name, spelling):
    arguments = {**TO_DESTINATION[name], "destination": DeviceAt(2, spelling)}
    call = PublicCall(f"comm.{name}", arguments)
    result = call.run(target, call.inputs(topology))
    found = result[0] if isinstance(result, tuple) else result
    assert found.device == topology.device(2)


@clause("comm.devices.whichever-is-current")
@pytest.mark.parametrize("current", [1, 2], ids="slot={}".format)
@pytest.mark.parametrize("name", TO_DEVICES)
def test_an_ordinal_means_its_device_whichever_is_current(target, topology, name, current):
    devices = [DeviceAt(0, "ordinal"), DeviceAt(1, "ordinal")]
    call = PublicCall(f"comm.{name}", {**TO_DEVICES[name], "devices": devices})
    inputs = call.inputs(topology)
    with torch.accelerator.device_index(topology.device(current).index):
        rows = call.run(target, inputs)
    found = [row[0] if isinstance(row, list) else row for row in rows]
    assert [tensor.device for tensor in found] == topology.take(2)


@clause("comm.devices.whichever-is-current")
@pytest.mark.parametrize("current", [1, 2], ids="slot={}".format)
@pytest.mark.parametrize("name", TO_FIRST)
def test_a_destination_is_its_device_whichever_is_current(target, topology, name, current):
    call = PublicCall(f"comm.{name}", {**TO_FIRST[name], "destination": DeviceAt(0, "ordinal")})
    inputs = call.inputs(topology)
    with torch.accelerator.device_index(topology.device(current).index):
        result = call.run(target, inputs)
    found = result[0] if isinstance(result, tuple) else result
    assert found.device == topology.device(0)


@clause("comm.devices.refuses-cpu")
@pytest.mark.parametrize("name", TO_DEVICES)
@pytest.mark.parametrize("cpu", ["cpu", torch.device("cpu")], ids=repr)
def test_the_cpu_is_refused_as_a_device(target, topology, name, cpu):
    call = PublicCall(f"comm.{name}", {**TO_DEVICES[name], "devices": [DeviceAt(0), cpu]})
    refused(call, target, topology, ValueError, CPU)


@clause("comm.devices.refuses-cpu")
@pytest.mark.parametrize("name", ["reduce_add", "reduce_add_coalesced"])
@pytest.mark.parametrize("cpu", ["cpu", torch.device("cpu")], ids=repr)
def test_the_cpu_is_refused_as_the_destination_of_a_sum(target, topology, name, cpu):
    call = PublicCall(f"comm.{name}", {**TO_DESTINATION[name], "destination": cpu})
    refused(call, target, topology, ValueError, CPU)


@clause("comm.devices.refuses-no-index")
@pytest.mark.parametrize("name", TO_DEVICES)
@pytest.mark.parametrize("spelled", [str, torch.device], ids=["text", "device"])
def test_a_device_without_index_is_refused(target, topology, name, spelled):
    devices = [DeviceAt(0), spelled(topology.accelerator)]
    call = PublicCall(f"comm.{name}", {**TO_DEVICES[name], "devices": devices})
    refused(call, target, topology, ValueError, NO_INDEX.format(topology.accelerator))


@clause("comm.devices.current-device-kept")
@pytest.mark.parametrize("current", [0, 1], ids="slot={}".format)
@pytest.mark.parametrize("name", TO_DEVICES)
def test_copies_leave_the_current_device_alone(target, topology, name, current):
    call = PublicCall(
        f"comm.{name}", {**TO_DEVICES[name], "devices": [DeviceAt(0), DeviceAt(2), DeviceAt(3)]}
    )
    ordinal = topology.device(current).index
    with torch.accelerator.device_index(ordinal):
        call.run(target, call.inputs(topology))
        assert torch.accelerator.current_device_index() == ordinal


@clause("comm.devices.current-device-kept")
@pytest.mark.parametrize("current", [0, 1], ids="slot={}".format)
@pytest.mark.parametrize("name", TO_DESTINATION)
def test_sums_and_joins_leave_the_current_device_alone(target, topology, name, current):
    call = PublicCall(f"comm.{name}", {**TO_DESTINATION[name], "destination": DeviceAt(2)})
    ordinal = topology.device(current).index
    with torch.accelerator.device_index(ordinal):
        call.run(target, call.inputs(topology))
        assert torch.accelerator.current_device_index() == ordinal


@clause("comm.devices.current-streams")
@pytest.mark.parametrize("name", TO_DEVICES)
def test_copies_run_on_the_current_stream_of_their_device(target, topology, name):
    topology.require(distinct=2)
    topology.require_copies()
    call = PublicCall(f"comm.{name}", {**TO_DEVICES[name], "devices": [DeviceAt(0), DeviceAt(1)]})
    inputs = call.inputs(topology)
    with StreamAt(1).build(topology) as stream:
        used = streams_of(lambda: call.run(target, inputs))
    assert {each.stream_id for each in used} == {stream.stream_id}


@clause("comm.devices.any-dtype")
@pytest.mark.parametrize("name", TO_DEVICES)
@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64], ids=str)
def test_wide_unsigned_integers_are_copied(target, topology, name, dtype):
    topology.require_copies()
    tensor = counting((4, 3), dtype, topology.device(0))
    argument = [tensor] if name == "broadcast_coalesced" else tensor
    devices = topology.take(1 if name == "scatter" else 2)
    last = getattr(target.comm, name)(argument, devices)[-1]
    found = last[0] if isinstance(last, list) else last
    assert (found.dtype, found.tolist()) == (dtype, tensor.tolist())
