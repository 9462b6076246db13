"""DataParallel: the order of work on side streams without synchronization."""

import pytest
import torch

from spec_tests import checks
from spec_tests.checks.async_training import BATCH, SOURCES, STEPS, Scale, batches, train
from spec_tests.checks.side_streams import on_side_streams, queued_copies
from spec_tests.machine.clauses import clause


@clause("data_parallel.queue-order")
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("slots", [1, 3], ids="devices={}".format)
def test_calls_on_side_streams_need_no_wait(topology, wrap, source, slots):
    net = Scale().to(topology.device(0))
    wrapped = wrap(net, slots)
    found = []
    with on_side_streams(topology), torch.no_grad():
        for batch in batches(topology, source):
            found += queued_copies(wrapped(batch))
            net.scale += 1
            del batch
    for step, output in enumerate(found, 1):
        checks.same(output, step * BATCH)


@clause("data_parallel.queue-order")
@pytest.mark.parametrize("source", SOURCES)
def test_training_steps_on_side_streams_need_no_wait(topology, wrap, source):
    net = Scale().to(topology.device(0))
    wrapped = wrap(net, 1)
    with on_side_streams(topology):
        found = train(wrapped, net, batches(topology, source))
    plain = Scale()
    checks.same(found, train(plain, plain, [BATCH] * STEPS))
