"""comm: stream order of the queued copies and the caller's own work."""

import pytest
import torch

from spec_tests import checks
from spec_tests.checks.side_streams import (
    late_copies,
    on_side_streams,
    queued_arange,
    queued_copies,
)
from spec_tests.machine.clauses import clause
from spec_tests.strategies.calls import StreamAt

ROWS = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
DOUBLED = [[2 * number for number in row] for row in ROWS]
#: Number of elements of a large tensor, which a target may copy directly instead of in a bucket.
LARGE = 2**18


def _queued(topology, *slots, rows=3):
    return [queued_arange(topology, slot, rows, 2) for slot in slots]


def _members(rows):
    return [tensor for row in rows for tensor in row]


#: For each call: a function that makes it with queued tensors, and the values of its results.
CALLS = {
    "scatter": (lambda comm, t: comm.scatter(*_queued(t, 0), t.take(3)), [[row] for row in ROWS]),
    "scatter-out": (
        lambda comm, t: comm.scatter(*_queued(t, 0), out=_queued(t, 0, 1, 2, rows=1)),
        [[row] for row in ROWS],
    ),
    "gather": (lambda comm, t: [comm.gather(_queued(t, 0, 1, 2), 0, t.device(1))], [ROWS * 3]),
    "gather-out": (
        lambda comm, t: [comm.gather(_queued(t, 0, 1, 2), 0, out=queued_arange(t, 1, 9, 2))],
        [ROWS * 3],
    ),
    "broadcast": (lambda comm, t: comm.broadcast(*_queued(t, 0), t.take(3)), [ROWS] * 3),
    "broadcast-out": (
        lambda comm, t: comm.broadcast(*_queued(t, 0), out=_queued(t, 0, 1, 2)),
        [ROWS] * 3,
    ),
    "broadcast_coalesced": (
        lambda comm, t: _members(comm.broadcast_coalesced(_queued(t, 0, 0), t.take(3))),
        [ROWS] * 6,
    ),
    "reduce_add": (lambda comm, t: [comm.reduce_add(_queued(t, 0, 1), t.device(1))], [DOUBLED]),
    "reduce_add_coalesced": (
        lambda comm, t: comm.reduce_add_coalesced(
            [_queued(t, 0, 0), _queued(t, 1, 1)], t.device(1)
        ),
        [DOUBLED] * 2,
    ),
}


@clause("comm.order.current-streams")
@pytest.mark.parametrize("name", CALLS)
def test_results_can_be_used_and_inputs_freed_without_waiting(target, topology, name):
    call, expected = CALLS[name]
    with on_side_streams(topology):
        # The inputs are freed when `call` returns. The results are freed before the queued
        # copies of them run.
        found = queued_copies(*call(target.comm, topology))
    checks.same([tensor.tolist() for tensor in found], expected)


@clause("comm.order.current-streams")
def test_large_tensors_can_be_used_and_freed_without_waiting(target, topology):
    with on_side_streams(topology):
        tensors = [queued_arange(topology, 0, LARGE), queued_arange(topology, 0, LARGE)]
        rows = target.comm.broadcast_coalesced(tensors, topology.take(3))
        (total,) = queued_copies(
            *target.comm.reduce_add_coalesced([row[:1] for row in rows], topology.device(0))
        )
        del tensors, rows
    checks.same(total.sum().item(), 3 * torch.arange(1.0, LARGE + 1).sum().item())


@clause("comm.order.host")
@pytest.mark.parametrize("has_out", [False, True], ids=["destination", "out"])
def test_result_on_the_cpu_is_complete_when_gather_returns(target, topology, has_out):
    chunks = _queued(topology, 0, 1, 2)
    destination = {"out": torch.empty(9, 2)} if has_out else {"destination": "cpu"}
    with late_copies(topology):
        checks.same(target.comm.gather(chunks, 0, **destination).tolist(), ROWS * 3)


@clause("comm.order.inputs")
def test_later_writes_to_inputs_do_not_change_results(target, topology):
    topology.require(3)  # A result on the device of its input may be the input, or a view of it.
    with on_side_streams(topology):
        tensor, *others = _queued(topology, 0, 1, 2)
        copies = target.comm.broadcast(tensor, topology.take(3))[1:]
        chunks = target.comm.scatter(tensor, topology.take(3))[1:]
        joined = target.comm.gather([tensor, *others], 0, topology.device(1))
        total = target.comm.reduce_add([tensor, others[0]], topology.device(1))
        for source in (tensor, *others):
            source.zero_()
        found = queued_copies(*copies, *chunks, joined, total)
    expected = [ROWS, ROWS, [ROWS[1]], [ROWS[2]], ROWS * 3, DOUBLED]
    checks.same([tensor.tolist() for tensor in found], expected)


@clause("comm.scatter.streams-order")
@pytest.mark.parametrize("source", [None, 0], ids=["from-cpu", "from-device"])
def test_chunk_is_ready_for_work_on_its_stream(target, topology, source):
    rows = torch.tensor(ROWS) if source is None else queued_arange(topology, source, 3, 2)
    topology.synchronize()
    streams = [StreamAt(slot).build(topology) for slot in range(3)]
    found = []
    with late_copies(topology):
        chunks = target.comm.scatter(rows, topology.take(3), streams=streams)
        for chunk, stream in zip(chunks, streams, strict=True):
            with stream:
                found.append(chunk * 1)  # not behind late work, which would hide an early read
    topology.synchronize()
    checks.same([tensor.tolist() for tensor in found], [[row] for row in ROWS])


@clause("comm.scatter.streams-order")
def test_output_is_filled_after_earlier_work_on_its_stream(target, topology):
    streams = [StreamAt(slot).build(topology) for slot in range(3)]
    outs = []
    for slot, stream in enumerate(streams):
        with stream:
            outs.append(queued_arange(topology, slot, 1, 2))
    rows = torch.tensor(ROWS)
    target.comm.scatter(rows, out=outs, streams=streams)
    topology.synchronize()
    checks.same([out.tolist() for out in outs], [[row] for row in ROWS])


@clause("comm.scatter.streams-order")
def test_chunk_without_a_stream_is_ready_on_the_current_stream(target, topology):
    topology.require(2)  # On the device of the chunk before, its stream would stay current.
    first, other = topology.take(2)
    streams = [StreamAt(slot).build(topology) for slot in range(2)]
    chunks = target.comm.scatter(torch.tensor(ROWS), [first, other, first], streams=streams)
    (found,) = queued_copies(chunks[2])
    topology.synchronize()
    checks.same(found.tolist(), [ROWS[2]])
