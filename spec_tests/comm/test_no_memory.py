"""comm: errors when one device has no free memory."""

import pytest
import torch

from spec_tests.harness.concurrency.stream_log import current_device_and_streams
from spec_tests.harness.conformance.clauses import clause
from spec_tests.strategies.calls import DeviceAt, PublicCall
from spec_tests.strategies.comm import dense

#: Devices of a call. In the test, allocations on `topology.device(2)` fail.
DEVICES = [DeviceAt(0), DeviceAt(2), DeviceAt(1)]
SMALL = dense()
CALLS = {
    "scatter": {"tensor": SMALL, "devices": DEVICES},
    "broadcast": {"tensor": SMALL, "devices": DEVICES},
    "broadcast_coalesced": {
        "tensors": [dense(slot=1), dense((2**18, 4), slot=1)],
        # The first device of the list is not current, so the call must switch devices.
        "devices": [DeviceAt(1), DeviceAt(2)],
    },
    "reduce_add": {"inputs": [SMALL, dense(slot=2)], "destination": DeviceAt(2)},
    "reduce_add_coalesced": {"inputs": [[SMALL], [dense(slot=2)]], "destination": DeviceAt(2)},
    "gather": {"tensors": [SMALL, dense(slot=1)], "destination": DeviceAt(2)},
}


@clause("comm.no-memory")
@pytest.mark.parametrize("name", CALLS)
def test_out_of_memory_error_is_raised_and_the_next_call_works(target, topology, name):
    topology.require(distinct=3)
    call = PublicCall(f"comm.{name}", CALLS[name])
    inputs, before = call.inputs(topology), current_device_and_streams(topology)
    for _ in range(2):
        with topology.fail_allocations(2), pytest.raises(torch.OutOfMemoryError):
            call.run(target, inputs)
        assert current_device_and_streams(topology) == before
        call.run(target, inputs)  # Allocations succeed again.
