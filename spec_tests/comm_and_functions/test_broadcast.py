"""comm.broadcast_coalesced and functions.Broadcast: refused calls."""

import pytest

from spec_tests.harness.compare.refusals import refused
from spec_tests.harness.conformance.clauses import clause
from spec_tests.strategies.calls import ApplyCall, DistinctDevices, PublicCall
from spec_tests.strategies.comm import dense

DISTINCT_DEVICES = DistinctDevices((0, 1))


def _comm_broadcast(*tensors):
    arguments = {"tensors": list(tensors), "devices": DISTINCT_DEVICES}
    return PublicCall("comm.broadcast_coalesced", arguments)


def _function_broadcast(*tensors):
    return ApplyCall("Broadcast", (DISTINCT_DEVICES,), tensors)


@pytest.mark.parametrize(
    "broadcast",
    [
        pytest.param(
            _comm_broadcast,
            marks=clause("comm.broadcast-coalesced.refuses-other-devices"),
            id="comm",
        ),
        pytest.param(
            _function_broadcast,
            marks=clause("functions.broadcast.refuses-other-devices"),
            id="functions",
        ),
    ],
)
def test_tensor_on_another_device_than_the_first_is_refused(target, topology, broadcast):
    topology.require(distinct=2)
    text = "All tensors must be on devices[0]: {ordinals[0]}"
    refused(broadcast(dense(), dense(slot=1)), target, topology, RuntimeError, text)
