"""The streams on which backward reads gradients. The reference uses default streams: FN-6."""

import pytest
import torch

from spec_tests.harness.compare import checks
from spec_tests.harness.concurrency.async_training import (
    BATCH,
    SOURCES,
    STEPS,
    Scale,
    batches,
    train,
)
from spec_tests.harness.concurrency.side_streams import (
    fail_on_races,
    on_side_streams,
    queued_arange,
    queued_copies,
)
from spec_tests.harness.conformance.clauses import clause


def _scatter(functions, topology, leaf):
    return functions.Scatter.apply(topology.take(3), None, 0, leaf)


def _broadcast(functions, topology, leaf):
    return functions.Broadcast.apply(topology.take(3), leaf)


#: For each call: the expected gradient of each element of its input.
CALLS = {_scatter: 1.0, _broadcast: 3.0}


def _gradient(library, topology, call):
    with on_side_streams(topology):
        leaf = queued_arange(topology, 0, 3, 2).requires_grad_()
        results = [result * 1 for result in call(library.functions, topology, leaf)]
        grads = [torch.ones_like(result) for result in results]
        torch.autograd.backward(results, grads)
        # Drop the references, so that later work may reuse the memory of the gradients.
        del results, grads
        return queued_copies(leaf.grad)[0]


@clause("divergences.FN-6.gradients-stay-on-their-streams")
@pytest.mark.parametrize(("call", "gradient"), CALLS.items(), ids=["scatter", "broadcast"])
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
