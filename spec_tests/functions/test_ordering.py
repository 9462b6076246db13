"""What the Functions leave queued is in order with the caller's own work, backward too."""

import pytest
import torch

from spec_tests.harness.concurrency.side_streams import (
    on_side_streams,
    queued_arange,
    queued_copies,
)
from spec_tests.harness.concurrency.stream_log import streams_of
from spec_tests.harness.conformance.clauses import clause

ROWS = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]


def _rows(pinned, requires_grad):
    rows = torch.tensor(ROWS)
    rows = rows.pin_memory() if pinned else rows
    return rows.requires_grad_(requires_grad)


@clause("functions.scatter.cpu-input-is-ready")
@pytest.mark.parametrize("pinned", [False, True], ids=["pageable", "pinned"])
@pytest.mark.parametrize("requires_grad", [False, True], ids=["plain", "grad"])
def test_a_chunk_from_the_cpu_is_ready(target, topology, pinned, requires_grad):
    # PyTorch 1.0: readers on the current stream overtook the copy (#16966).
    rows = _rows(pinned, requires_grad)
    chunks = target.functions.Scatter.apply(topology.take(3), None, 0, rows)
    found = queued_copies(*chunks)
    topology.synchronize()
    assert [tensor.tolist() for tensor in found] == [[row] for row in ROWS]


@clause("functions.scatter.cpu-input-may-be-freed")
@pytest.mark.parametrize("pinned", [False, True], ids=["pageable", "pinned"])
@pytest.mark.parametrize("requires_grad", [False, True], ids=["plain", "grad"])
def test_a_chunk_from_the_cpu_may_be_freed_at_once(target, topology, pinned, requires_grad):
    # Without record_stream the side stream reuses what the current one still reads (#18465).
    rows = _rows(pinned, requires_grad)
    # The chunks are freed when the work that reads them has been queued.
    found = queued_copies(*target.functions.Scatter.apply(topology.take(3), None, 0, rows))
    assert [tensor.tolist() for tensor in found] == [[row] for row in ROWS]


@clause("functions.scatter.cpu-input-is-ready")
def test_a_chunk_from_the_cpu_is_ready_on_the_callers_side_streams(target, topology):
    with on_side_streams(topology):
        rows = torch.tensor(ROWS)
        found = queued_copies(*target.functions.Scatter.apply(topology.take(3), None, 0, rows))
    assert [tensor.tolist() for tensor in found] == [[row] for row in ROWS]


def _gather(functions, topology, leaf):
    parts = [leaf, *(queued_arange(topology, slot, 3, 2) for slot in (1, 2))]
    return [functions.Gather.apply(topology.device(1), 0, *parts)]


def _sums(functions, topology, leaf):
    others = [queued_arange(topology, slot, 3, 2) for slot in (1, 2)]
    return functions.ReduceAddCoalesced.apply(topology.device(0), 1, leaf, *others)


CALLS = [_gather, _sums]


@clause("functions.order.gradients")
@pytest.mark.parametrize("call", CALLS, ids=["gather", "sums"])
def test_gradients_are_ready_where_backward_was_called(target, topology, call):
    with on_side_streams(topology):
        leaf = queued_arange(topology, 0, 3, 2).requires_grad_()
        results = [result * 1 for result in call(target.functions, topology, leaf)]
        grads = [torch.ones_like(result) for result in results]
        torch.autograd.backward(results, grads)
        del results, grads
        (found,) = queued_copies(leaf.grad)
    assert found.tolist() == [[1.0] * 2] * 3


@clause("functions.order.host")
@pytest.mark.filterwarnings("ignore:Using -1 to represent CPU tensor is deprecated:FutureWarning")
def test_the_gradient_of_a_cpu_input_is_there_when_backward_returns(target, topology):
    rows = torch.tensor(ROWS, requires_grad=True)
    with on_side_streams(topology):
        chunks = target.functions.Scatter.apply(topology.take(3), None, 0, rows)
        torch.autograd.backward([(chunk * 3).sum() for chunk in chunks])
    assert _sent_on(topology, rows.grad) == [[3.0] * 2] * 3


@clause("functions.order.host")
def test_what_arrives_on_the_cpu_is_there_when_the_call_returns(target, topology):
    with on_side_streams(topology):
        parts = [queued_arange(topology, slot, 3, 2) for slot in (0, 1)]
        joined = target.functions.Gather.apply("cpu", 0, *parts)
    assert _sent_on(topology, joined) == ROWS * 2


def _sent_on(topology, tensor):
    """The numbers that a device finds at once in memory of the host."""
    side = torch.Stream(topology.device(0))
    with side:
        sent = tensor.to(topology.device(0), non_blocking=True)
        side.synchronize()
    return sent.tolist()


@clause("functions.scatter.beside-the-current-stream")
def test_a_chunk_from_the_cpu_is_copied_beside_the_current_stream(target, topology):
    rows = torch.tensor(ROWS)
    found = streams_of(lambda: target.functions.Scatter.apply(topology.take(3), None, 0, rows))
    current = [torch.accelerator.current_stream(device) for device in topology.take(3)]
    assert len(found) == 3
    assert not [stream for stream in found if stream in current]
