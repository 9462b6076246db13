"""parallel_apply: a device without free memory."""

import pytest
import torch

from spec_tests.harness.concurrency.stream_log import current_device_and_streams
from spec_tests.harness.conformance.clauses import clause
from spec_tests.strategies.probe_modules import Double


@clause("parallel_apply.errors.no-memory")
@pytest.mark.parametrize("slot", range(3), ids="slot={}".format)
def test_the_error_names_the_device_without_memory(target, topology, slot):
    topology.require(distinct=3)
    inputs = [torch.ones(3, device=device) for device in topology.take(3)]
    ordinals, before = (
        [device.index for device in topology.take(3)],
        current_device_and_streams(topology),
    )
    run = target.parallel_apply.parallel_apply
    text = f"Caught OutOfMemoryError in replica {slot} on device {ordinals[slot]}"
    for _ in range(2):
        with topology.fail_allocations(slot), pytest.raises(torch.OutOfMemoryError, match=text):
            run([Double()] * 3, inputs, devices=ordinals)
        assert current_device_and_streams(topology) == before
        results = run([Double()] * 3, inputs, devices=ordinals)
        assert [result.tolist() for result in results] == [[2.0] * 3] * 3
