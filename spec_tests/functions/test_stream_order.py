"""functions: stream order of the Functions' work and the caller's work, also in backward.

The reference reads some gradients on default streams: FN-6.
"""

import pytest
import torch

from spec_tests import checks
from spec_tests.checks.async_training import BATCH, SOURCES, STEPS, Scale, batches, train
from spec_tests.checks.side_streams import (
    DELAY,
    fail_on_races,
    on_side_streams,
    queued_arange,
    queued_copies,
    require_order,
)
from spec_tests.checks.stream_log import streams_of
from spec_tests.machine import capabilities
from spec_tests.machine.clauses import clause
from spec_tests.machine.devices import queue_work

ROWS = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]


@clause("functions.scatter.cpu-input-is-ready")
@clause("functions.scatter.cpu-input-may-be-freed")
@pytest.mark.parametrize("pinned", [False, True], ids=["pageable", "pinned"])
@pytest.mark.parametrize("requires_grad", [False, True], ids=["no-grad", "requires-grad"])
def test_chunk_of_a_cpu_input_can_be_read_and_freed_without_waiting(
    target, topology, pinned, requires_grad
):
    # PyTorch 1.0: work on the current stream read the chunk too early (#16966).
    # Without record_stream the side stream reuses memory that is still being read (#18465).
    rows = torch.tensor(ROWS).pin_memory() if pinned else torch.tensor(ROWS)
    rows.requires_grad_(requires_grad)
    # The chunks are freed after the work that reads them is queued, and before it runs.
    found = queued_copies(*target.functions.Scatter.apply(topology.take(3), None, 0, rows))
    checks.same([tensor.tolist() for tensor in found], [[row] for row in ROWS], place="values")


@clause("functions.scatter.cpu-input-is-ready")
def test_chunk_of_a_cpu_input_is_ready_on_a_side_stream(target, topology):
    with on_side_streams(topology):
        rows = torch.tensor(ROWS)
        found = queued_copies(*target.functions.Scatter.apply(topology.take(3), None, 0, rows))
    assert [tensor.tolist() for tensor in found] == [[row] for row in ROWS]


def _pinned_rows(first):
    rows = torch.arange(first, first + 2**20, dtype=torch.float32)
    return rows.pin_memory() if capabilities.offers("pinned-memory") else rows


@clause("functions.scatter.cpu-input-is-ready")
def test_chunk_with_a_delayed_copy_can_be_read_without_waiting(target, topology):
    capabilities.require("distinct-streams")
    capabilities.require("record-stream")  # a target may use no side stream without it
    require_order()
    rows = _pinned_rows(0)
    if target.functions.offers("_get_stream"):
        for device in dict.fromkeys(topology.devices):
            with target.functions.private("_get_stream")(device):
                queue_work(device, DELAY)
    chunks = target.functions.Scatter.apply(topology.take(3), None, 0, rows)
    assert torch.cat([chunk.cpu() for chunk in chunks]).equal(rows)


@clause("functions.scatter.cpu-input-may-be-freed")
def test_chunk_can_be_freed_before_queued_work_reads_it(target, topology):
    require_order()
    totals, expected = [], []
    for first in range(4):
        rows = _pinned_rows(first)
        chunks = target.functions.Scatter.apply(topology.take(3), None, 0, rows)
        for device in dict.fromkeys(topology.devices):
            queue_work(device, DELAY)
        # The sums run after the queued work. Without record_stream, the chunks of the next
        # iteration would overwrite the freed memory before the sums read it.
        totals.append([chunk.double().sum() for chunk in chunks])
        expected.append([chunk.double().sum() for chunk in rows.chunk(3)])
        del chunks
    assert [[total.item() for total in row] for row in totals] == expected


def _gather(functions, topology, leaf):
    chunks = [leaf, *(queued_arange(topology, slot, 3, 2) for slot in (1, 2))]
    return [functions.Gather.apply(topology.device(1), 0, *chunks)]


def _reduce_add_coalesced(functions, topology, leaf):
    others = [queued_arange(topology, slot, 3, 2) for slot in (1, 2)]
    return functions.ReduceAddCoalesced.apply(topology.device(0), 1, leaf, *others)


CALLS = [_gather, _reduce_add_coalesced]


def _gradient(library, topology, call):
    with on_side_streams(topology):
        leaf = queued_arange(topology, 0, 3, 2).requires_grad_()
        results = [result * 1 for result in call(library.functions, topology, leaf)]
        grads = [torch.ones_like(result) for result in results]
        torch.autograd.backward(results, grads, retain_graph=True)
        leaf.grad = None  # The second backward of a graph uses the same streams.
        torch.autograd.backward(results, grads)
        # Drop the references, so that later work may reuse the memory of the gradients.
        del results, grads
        return queued_copies(leaf.grad)[0]


@clause("functions.order.gradients")
@pytest.mark.parametrize("call", CALLS, ids=["gather", "reduce_add_coalesced"])
def test_gradients_are_ready_on_the_streams_of_the_backward_call(target, topology, call):
    checks.same(_gradient(target, topology, call), torch.ones(3, 2), place="gradient")


@clause("functions.order.host")
@pytest.mark.filterwarnings("ignore:Using -1 to represent CPU tensor is deprecated:FutureWarning")
def test_gradient_of_a_cpu_input_is_complete_when_backward_returns(target, topology):
    rows = torch.tensor(ROWS, requires_grad=True)
    with on_side_streams(topology):
        chunks = target.functions.Scatter.apply(topology.take(3), None, 0, rows)
        torch.autograd.backward([(chunk * 3).sum() for chunk in chunks])
    assert _read_by_device(topology, rows.grad) == [[3.0] * 2] * 3


@clause("functions.order.host")
def test_result_on_the_cpu_is_complete_when_the_function_returns(target, topology):
    with on_side_streams(topology):
        chunks = [queued_arange(topology, slot, 3, 2) for slot in (0, 1)]
        joined = target.functions.Gather.apply("cpu", 0, *chunks)
    checks.same(_read_by_device(topology, joined), ROWS * 2)


def _read_by_device(topology, tensor):
    """Copy ``tensor`` from the CPU to a device, and return the elements of the copy.

    The copy runs on a new stream, which waits for no earlier work.
    """
    side = torch.Stream(topology.device(0))
    with side:
        copied = tensor.to(topology.device(0), non_blocking=True)
        side.synchronize()
    return copied.tolist()


@clause("functions.scatter.beside-the-current-stream")
def test_chunk_of_a_cpu_input_is_copied_on_another_stream(target, topology):
    capabilities.require("distinct-streams")
    capabilities.require("record-stream")  # a target may use no side stream without it
    rows = torch.tensor(ROWS)
    found = streams_of(lambda: target.functions.Scatter.apply(topology.take(3), None, 0, rows))
    current = [torch.accelerator.current_stream(device) for device in topology.take(3)]
    assert len(found) == 3
    assert not [stream for stream in found if stream in current]


def _scatter(functions, topology, leaf):
    return functions.Scatter.apply(topology.take(3), None, 0, leaf)


def _broadcast(functions, topology, leaf):
    return functions.Broadcast.apply(topology.take(3), leaf)


#: For each call: the expected gradient of each element of its input.
GRADIENTS = {_scatter: 1.0, _broadcast: 3.0}


@clause("divergences.FN-6.gradients-stay-on-their-streams")
@pytest.mark.parametrize(("call", "gradient"), GRADIENTS.items(), ids=["scatter", "broadcast"])
def test_gradients_are_read_on_the_streams_that_made_them(target, topology, call, gradient):
    topology.require(distinct=2)
    with fail_on_races(topology):
        found = _gradient(target, topology, call)
    checks.same(found, torch.full((3, 2), gradient))


@clause("divergences.FN-6.gradients-stay-on-their-streams")
@pytest.mark.parametrize("slot", [0, 2], ids=["first-device", "last-device"])
def test_gradient_of_an_input_is_ready_for_the_preceding_node(target, topology, slot):
    topology.require(distinct=2)
    with fail_on_races(topology):
        leaf = queued_arange(topology, slot, 3, 2).requires_grad_()
        doubled = leaf * 2
        with on_side_streams(topology):
            chunks = target.functions.Scatter.apply(topology.take(3), None, 0, doubled)
            torch.autograd.backward([(chunk * 3).sum() for chunk in chunks])
            del chunks
        found = queued_copies(leaf.grad)[0].tolist()
    assert found == [[6.0] * 2] * 3


@clause("divergences.FN-6.gradients-stay-on-their-streams")
@pytest.mark.parametrize("source", SOURCES)
def test_training_steps_on_several_devices_need_no_wait(target, topology, source):
    topology.require(distinct=2)
    net, plain = Scale().to(topology.device(0)), Scale()
    devices = [device.index for device in topology.take(3)]
    wrapped = target.data_parallel.DataParallel(net, devices)
    with fail_on_races(topology), on_side_streams(topology):
        found = train(wrapped, net, batches(topology, source))
    checks.same(found, train(plain, plain, [BATCH] * STEPS))


@clause("divergences.FN-6.gradients-stay-on-their-streams")
def test_backward_reads_gradients_on_the_streams_that_wrote_them(target, topology):
    topology.require(distinct=2)
    net = Scale().to(topology.device(0))
    with fail_on_races(topology), on_side_streams(topology):
        replicas = target.replicate.replicate(net, topology.take(3))
        torch.autograd.backward([(replica.scale * 3).sum() for replica in replicas])
        del replicas
        (found,) = queued_copies(net.scale.grad)
    checks.same(found, torch.full((2,), 9.0))
