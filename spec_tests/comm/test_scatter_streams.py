"""comm.scatter with ``streams``: the stream on which each chunk is copied."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_tests import checks
from spec_tests.checks.refusals import refused
from spec_tests.checks.stream_log import current_device_and_streams, streams_of
from spec_tests.machine.clauses import clause, error_of
from spec_tests.strategies.calls import DeviceAt, KeywordCall, StreamAt
from spec_tests.strategies.comm import dense, scatter_calls, scatter_out_calls
from spec_tests.strategies.tensors import counting


class StreamedCall(KeywordCall):
    """A call whose streams wait for the current streams. After it, the host waits for them."""

    def run(self, target, inputs):
        streams = [stream for stream in inputs["streams"] if stream is not None]
        for stream in streams:
            stream.wait_stream(torch.accelerator.current_stream(stream.device))
        try:
            return super().run(target, inputs)
        finally:
            for stream in streams:
                stream.synchronize()


@clause("comm.scatter.streams-same-chunks")
@given(call=scatter_calls(grads=(False,)), data=st.data())
def test_streams_do_not_change_the_chunks(target, baselines, topology, call, data):
    streams = [
        data.draw(st.sampled_from([None, StreamAt(at.slot)])) for at in call.arguments["devices"]
    ]
    arguments = {**call.arguments, "streams": streams[: data.draw(st.integers(0, 4))]}
    checks.agree(StreamedCall(call.function, arguments), target, baselines, topology)


@clause("comm.scatter.streams-same-chunks")
@given(call=scatter_out_calls(), extra=st.booleans())
def test_streams_do_not_change_the_outputs(target, baselines, topology, call, extra):
    streams = [StreamAt(out.slot) for out in call.arguments["out"]] + [None] * extra
    arguments = {**call.arguments, "streams": streams}
    checks.agree(StreamedCall(call.function, arguments), target, baselines, topology)


def _stream_ids(call, target, topology):
    """Return the ids of the streams on which a call copies, and those of its argument."""
    inputs = call.inputs(topology)
    topology.synchronize()
    used = streams_of(lambda: call.run(target, inputs))
    topology.synchronize()
    given = [stream for stream in inputs["streams"] if stream is not None]
    return [[stream.stream_id for stream in streams] for streams in (used, given)]


@clause("comm.scatter.streams-carry-the-copies")
def test_chunks_are_copied_and_outputs_filled_on_their_streams(target, topology):
    slots = range(3)
    outs = {"tensor": dense((6, 2)), "out": [dense((2, 2), slot) for slot in slots]}
    devices = {"tensor": dense((6, 2), None), "devices": [DeviceAt(slot) for slot in slots]}
    for arguments in (outs, devices):
        streams = [StreamAt(slot) for slot in slots]
        call = KeywordCall("comm.scatter", {**arguments, "streams": streams})
        checks.same(*_stream_ids(call, target, topology), call, place="stream_id")


@clause("comm.scatter.streams-last")
def test_chunk_with_stream_none_uses_the_previous_stream(target, topology):
    call = _scatter(None, [StreamAt(0), None, StreamAt(0), None], devices=[DeviceAt(0)] * 4)
    used, (first, second) = _stream_ids(call, target, topology)
    checks.same(used, [first, first, second, second], call, place="stream_id")


@clause("comm.scatter.streams-last")
def test_chunk_with_stream_none_does_not_use_a_stream_of_another_device(target, topology):
    topology.require(distinct=2)
    devices = [DeviceAt(slot) for slot in (0, 0, 1, 0)]
    call = _scatter(None, [None, StreamAt(0), StreamAt(1), None], devices=devices)
    used, (first, second) = _stream_ids(call, target, topology)
    current = torch.accelerator.current_stream(topology.device(0)).stream_id
    checks.same(used, [current, first, second, current], call, place="stream_id")


@clause("comm.scatter.streams-restored")
@pytest.mark.parametrize("source", [None, 0], ids=["from-cpu", "from-device"])
def test_scatter_restores_current_device_and_streams(target, topology, source):
    tensor = counting((6, 2), torch.float32, topology.device(source))
    streams = [StreamAt(slot).build(topology) for slot in range(3)]
    before = current_device_and_streams(topology)
    target.comm.scatter(tensor, topology.take(3), streams=streams)
    outs = [torch.empty((2, 2), device=device) for device in topology.take(3)]
    topology.synchronize()  # Earlier work may still use the memory of `outs`.
    target.comm.scatter(tensor, out=outs, streams=streams)
    topology.synchronize()
    assert current_device_and_streams(topology) == before


@clause("comm.no-memory")
@pytest.mark.parametrize("full", [0, 1])
def test_out_of_memory_error_on_a_listed_stream_restores_current_streams(target, topology, full):
    topology.require(distinct=2)
    streams = [StreamAt(slot).build(topology) for slot in range(2)]
    ordinals = [device.index for device in topology.take(2)]
    before = current_device_and_streams(topology)
    with topology.fail_allocations(full), pytest.raises(torch.OutOfMemoryError):
        target.comm.scatter(torch.ones(4, 2), ordinals, streams=streams)
    assert current_device_and_streams(topology) == before


def _scatter(slot, streams, **options):
    """Describe a call with a tensor on a device, or for None on the CPU, and two chunks."""
    options = options or {"devices": [DeviceAt(0)] * 2}
    return KeywordCall(
        "comm.scatter", {"tensor": dense((4, 2), slot), **options, "streams": streams}
    )


@clause("comm.scatter.streams-of-views-ignored")
def test_stream_of_a_chunk_that_is_not_copied_is_ignored(target, baselines, topology):
    topology.require(distinct=2)
    checks.agree(_scatter(0, [StreamAt(1)] * 2), target, baselines, topology)


OUTS = [dense((2, 2)), dense((2, 2))]
#: Calls, each with the index of the stream on another device.
MISMATCHED = [
    (_scatter(None, [StreamAt(1), None]), 0),
    (_scatter(None, [None, StreamAt(1)]), 1),
    # The stream of an output is checked even if the output is on the device of the tensor.
    (_scatter(0, [StreamAt(1)], out=OUTS), 0),
]


@clause("comm.scatter.refuses-streams-of-other-devices")
@pytest.mark.parametrize(("call", "index"), MISMATCHED, ids=["first", "second", "out"])
def test_stream_on_another_device_than_its_chunk_is_refused(target, topology, call, index):
    topology.require(distinct=2)
    # The reference prints the device ordinal as a control character.
    error = error_of("comm.scatter.refuses-streams-of-other-devices", index=index)
    refused(call, target, topology, error)


@clause("comm.scatter.refuses-what-is-no-stream")
@pytest.mark.parametrize(("streams", "number"), [(["fast"], 0), ([None, 3], 0), (7, 1)], ids=str)
def test_value_other_than_streams_and_none_is_refused(target, topology, streams, number):
    error = error_of("comm.scatter.refuses-what-is-no-stream", number)
    refused(_scatter(None, streams), target, topology, error)


@clause("comm.scatter.refuses-what-is-no-stream")
def test_stream_of_another_device_type_is_refused(target, topology):
    index = topology.device(0).index
    stream = torch.Stream(stream_id=0, device_index=index, device_type=0)  # of the CPU
    with pytest.raises(RuntimeError):
        target.comm.scatter(torch.ones(4, 2), topology.take([0, 0]), streams=[None, stream])
