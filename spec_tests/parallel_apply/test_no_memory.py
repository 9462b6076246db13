"""parallel_apply: a device without free memory."""

import pytest
import torch
from torch import nn

from spec_tests.harness.concurrency.stream_log import current_places
from spec_tests.harness.conformance.clauses import clause
from spec_tests.harness.environment.faults import without_memory


class Adding(nn.Module):
    """A module that adds one to its input and allocates memory for the result."""

    def forward(self, x):
        """Return the sum."""
        return x + 1


@clause("parallel_apply.errors.no-memory")
@pytest.mark.parametrize("slot", range(3), ids="slot={}".format)
def test_the_error_names_the_device_without_memory(target, topology, slot):
    topology.require(distinct=3)
    inputs = [torch.ones(3, device=device) for device in topology.take(3)]
    ordinals, before = [device.index for device in topology.take(3)], current_places(topology)
    run = target.parallel_apply.parallel_apply
    text = f"Caught OutOfMemoryError in replica {slot} on device {ordinals[slot]}"
    for _ in range(2):
        with without_memory(topology, slot), pytest.raises(torch.OutOfMemoryError, match=text):
            run([Adding()] * 3, inputs, devices=ordinals)
        assert current_places(topology) == before
        results = run([Adding()] * 3, inputs, devices=ordinals)
        assert [result.tolist() for result in results] == [[2.0] * 3] * 3
