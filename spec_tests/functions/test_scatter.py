"""functions.Scatter: chunks of one tensor, with gradients."""

import threading

import pytest
import torch
from hypothesis import given

from spec_tests import checks
from spec_tests.checks.refusals import check_error, refused
from spec_tests.checks.stream_log import CopyLog, current_device_and_streams
from spec_tests.checks.thread_order import TIMEOUT
from spec_tests.machine import capabilities
from spec_tests.machine.clauses import cases, clause, error_of
from spec_tests.strategies.calls import build
from spec_tests.strategies.comm import dense
from spec_tests.strategies.functions import scatter_applies, scatter_apply
from spec_tests.strategies.refused_calls import REFUSED_SCATTERS, scatter_to_own_device
from spec_tests.strategies.tensors import COMPLEX, FLOATS, counting


@clause("functions.scatter.chunks")
@given(call=scatter_applies() | scatter_applies(grads=(False,), slots=(None,)))
def test_scatter_function_returns_consecutive_slices(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


@clause("functions.scatter.gradient-joined")
@given(call=scatter_applies(dtypes=(*FLOATS, *COMPLEX), grads=(True,)))
def test_gradient_concatenates_the_gradients_of_the_chunks(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


@clause("functions.scatter.gradient-of-unused-chunks")
@pytest.mark.parametrize("used", range(3), ids="chunk={}".format)
def test_gradient_of_an_unused_chunk_is_zero(target, topology, used):
    tensor = torch.ones((3, 2), device=topology.device(0), requires_grad=True)
    chunks = target.functions.Scatter.apply(topology.take(3), None, 0, tensor)
    (found,) = torch.autograd.grad(chunks[used].sum(), tensor)
    expected = torch.zeros(3, 2, device="cpu")
    expected[used] = 1
    checks.same(found, expected, place="gradient")


@clause("functions.scatter.current-device")
def test_device_without_index_is_the_current_one(target, topology):
    topology.require(distinct=2)
    tensor = build(dense(slot=1), topology)
    with torch.accelerator.device_index(topology.device(1).index):
        devices = [torch.device(topology.accelerator), topology.device(2).index]
        chunks = target.functions.Scatter.apply(devices, None, 0, tensor)
    checks.same([chunk.device for chunk in chunks], topology.take([1, 2]), place="device")


@clause("functions.scatter.own-device-views")
def test_chunk_on_the_input_device_shares_memory_and_version(target, topology):
    call = scatter_apply(scatter_to_own_device())
    inputs = call.inputs(topology)
    (tensor,) = inputs["tensors"]
    first, second = call.run(target, inputs)
    checks.shares_memory(second, tensor)
    second.fill_(-1)
    checks.same(tensor[2:].tolist(), [[-1, -1]] * 2, place="aliasing")
    versions = {each._version for each in (first, second, tensor)}
    checks.same((len(versions), 0 in versions), (1, False), place="aliasing")


@clause("functions.scatter.views-refuse-in-place")
def test_view_of_an_input_that_requires_grad_refuses_in_place_writes(target, topology):
    call = scatter_apply(scatter_to_own_device(dense((4, 3), requires_grad=True)))
    inputs = call.inputs(topology)
    chunk, _ = call.run(target, inputs)
    checks.shares_memory(chunk, *inputs["tensors"])
    with pytest.raises(RuntimeError) as caught:
        chunk.zero_()
    check_error(caught.value, error_of("functions.scatter.views-refuse-in-place"), topology)


#: For each clause: calls, each with its error.
REFUSED = {
    "functions.scatter.refuses-like-comm": [
        (call, error_of(name, **values))
        for name, calls in REFUSED_SCATTERS.items()
        for call, values in calls
    ]
}


@cases("call, error", REFUSED)
def test_scatter_function_refuses_the_call(target, topology, call, error):
    refused(scatter_apply(call), target, topology, error)


@clause("functions.scatter.streams-restored")
def test_scatter_function_restores_current_device_and_streams(target, topology):
    tensor = counting((6, 2))
    before = current_device_and_streams(topology)
    target.functions.Scatter.apply(topology.take(3), None, 0, tensor)
    assert current_device_and_streams(topology) == before


@clause("functions.scatter.streams-restored")
def test_a_failed_copy_of_a_cpu_input_restores_current_device_and_streams(target, topology):
    before = current_device_and_streams(topology)
    with topology.fail_allocations(1), pytest.raises(torch.OutOfMemoryError):
        target.functions.Scatter.apply(topology.take(3), None, 0, counting((6, 2)))
    assert current_device_and_streams(topology) == before


@clause("functions.scatter.streams-restored-in-every-thread")
def test_concurrent_calls_restore_current_device_and_streams(target, topology):
    # Order of events: thread 0 starts its copy, thread 1 starts its copy, the call in thread 0
    # returns, the call in thread 1 returns.
    copying, first_ended = [threading.Event(), threading.Event()], threading.Event()
    # If Scatter is missing, the test must fail here and not in a thread.
    scatter_function = target.functions.Scatter
    places = []

    def scatter(slot, pause):
        torch.accelerator.set_device_index(topology.device(slot).index)
        before = current_device_and_streams(topology)
        with CopyLog(pause):
            scatter_function.apply(topology.take(2), None, 0, counting((6, 2)))
        places.append((before, current_device_and_streams(topology)))

    def run_first():
        scatter(0, lambda: (copying[0].set(), copying[1].wait(TIMEOUT)))
        first_ended.set()

    def run_second():
        copying[0].wait(TIMEOUT)
        scatter(1, lambda: (copying[1].set(), first_ended.wait(TIMEOUT)))

    threads = [threading.Thread(target=run) for run in (run_first, run_second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(places) == 2
    for before, after in places:
        checks.same(after[0], before[0], place="current device")
        checks.same(after[1], before[1], place="current streams")


@clause("functions.get-stream")
def test_get_stream_returns_one_side_stream_per_device(target, topology):
    capabilities.require("distinct-streams")
    capabilities.require("record-stream")  # a target may use no side stream without it
    get_stream = target.functions.private("_get_stream")
    for device in topology.devices:
        stream = get_stream(device)
        assert stream is get_stream(device)
        checks.same(stream.device, device)
        assert stream != torch.accelerator.current_stream(device)


@clause("functions.get-stream")
def test_get_stream_returns_none_for_the_cpu_and_refuses_other_types(target, topology):
    get_stream = target.functions.private("_get_stream")
    assert get_stream(torch.device("cpu")) is None
    values = {"accelerator": topology.accelerator, "device": "meta"}
    with pytest.raises(AssertionError) as caught:
        get_stream(torch.device("meta"))
    error = error_of("functions.get-stream", **values)
    check_error(caught.value, error, topology, 'get_stream("meta")')
