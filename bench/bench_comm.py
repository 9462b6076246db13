"""The time of broadcast_coalesced and reduce_add_coalesced for payloads of several sizes.

The benchmarks run only on real accelerators. On the simulator they would time the suite's own
replacements for the CUDA-only functions of torch.nn.parallel. They measure wall time on the host,
from the call until every device is idle. The bandwidth of a call is the number of bytes that it
must read and write (`moved_bytes`), divided by its time.
"""

from functools import partial

import pytest
import torch

from spec_tests.machine.devices import not_run

MIB = 2**20
DEVICES = 4
#: For each payload: the number of float32 tensors, and the number of elements of each tensor.
PAYLOADS = {
    "4KiB": (1, 1024),
    "3000x14KB": (3000, 3500),
    "25x16MiB": (25, 4 * MIB),
}


@pytest.fixture(autouse=True)
def _real_devices(topology):
    """End a benchmark as not-run on the simulator."""
    if topology.accelerator == "sim":
        not_run("the simulator has replacements for the comm primitives of torch.nn.parallel")


def _create_tensors(payload, device):
    count, size = PAYLOADS[payload]
    return [torch.ones(size, device=device) for _ in range(count)]


@pytest.mark.parametrize("payload", PAYLOADS)
def bench_broadcast_coalesced(time_alternately, libraries, benchmark, topology, payload):
    benchmark.group = f"broadcast_coalesced {payload}"
    devices = topology.take(DEVICES)
    tensors = _create_tensors(payload, devices[0])
    calls = {
        library: partial(target.comm.broadcast_coalesced, tensors, devices)
        for library, target in libraries.items()
    }
    written = {library: _count_bytes_written(tensors, call()) for library, call in calls.items()}

    time_alternately(
        calls, **{library: {"moved_bytes": 2 * written[library]} for library in calls}
    )

    for call in calls.values():
        assert torch.equal(call()[-1][-1].cpu(), tensors[-1].cpu())


@pytest.mark.parametrize("payload", PAYLOADS)
def bench_reduce_add_coalesced(time_alternately, libraries, benchmark, topology, payload):
    benchmark.group = f"reduce_add_coalesced {payload}"
    devices = topology.take(DEVICES)
    lists = [_create_tensors(payload, device) for device in devices]
    calls = {
        library: partial(target.comm.reduce_add_coalesced, lists, topology.ordinals[0])
        for library, target in libraries.items()
    }
    moved = (DEVICES + 1) * sum(t.nbytes for t in lists[0])

    time_alternately(calls, **{library: {"moved_bytes": moved} for library in calls})

    for call in calls.values():
        assert call()[-1][-1].item() == DEVICES


def _count_bytes_written(tensors, copies):
    # Count shared memory once: torch.nn.parallel makes one copy per device, even for a device that
    # occurs several times in `devices` (divergence CO-4).
    inputs = {tensor.data_ptr() for tensor in tensors}
    copied = [copy for device_copies in copies for copy in device_copies]
    new = [tensor for tensor in copied if tensor.data_ptr() not in inputs]
    written = {tensor.data_ptr(): tensor.nbytes for tensor in new}
    return sum(written.values())
