"""The time of broadcast_coalesced and reduce_add_coalesced for payloads of several sizes.

The benchmarks run only on real accelerators. On the simulator they would time the suite's own
replacements for the CUDA-only functions of torch.nn.parallel. They measure wall time on the host,
from the call until every device is idle. The bandwidth of a call is the number of bytes that it
must read and write, divided by its time. `copy_share` is this bandwidth divided by the bandwidth
of a large copy on the first device.
"""

import time

import pytest
import torch

from spec_tests.harness.environment.topology import not_run

from .libraries import for_both_libraries

MIB = 2**20
DEVICES = 4
#: For each payload: the number of float32 tensors, and the number of elements of each tensor.
PAYLOADS = {
    "4KiB": (1, 1024),
    "3000x14KB": (3000, 3500),
    "25x16MiB": (25, 4 * MIB),
}


@pytest.fixture(scope="session")
def copy_bandwidth(topology):
    """Return the bytes read and written per second in a copy of 1 GiB: the median of ten."""
    if topology.accelerator == "sim":
        not_run("the simulator has replacements for the comm primitives of torch.nn.parallel")
    source = torch.ones(2**28, device=topology.device(0))
    copy = torch.empty_like(source)
    seconds = []
    for _ in range(12):
        topology.synchronize()
        start = time.perf_counter()
        copy.copy_(source)
        topology.synchronize()
        seconds.append(time.perf_counter() - start)
    return 2 * source.nbytes / sorted(seconds[2:])[5]


def _create_tensors(payload, device):
    count, size = PAYLOADS[payload]
    return [torch.ones(size, device=device) for _ in range(count)]


@for_both_libraries
@pytest.mark.parametrize("payload", PAYLOADS)
def bench_broadcast_coalesced(time_call, benchmark, copy_bandwidth, library, topology, payload):
    benchmark.group = f"broadcast_coalesced {payload}"
    devices = topology.take(DEVICES)
    tensors = _create_tensors(payload, devices[0])

    copies = time_call(library.comm.broadcast_coalesced, tensors, devices)

    moved = 2 * _count_bytes_written(tensors, copies)
    _record_bandwidth(benchmark, copy_bandwidth, tensors, moved)
    assert torch.equal(copies[-1][-1].cpu(), tensors[-1].cpu())


@for_both_libraries
@pytest.mark.parametrize("payload", PAYLOADS)
def bench_reduce_add_coalesced(time_call, benchmark, copy_bandwidth, library, topology, payload):
    benchmark.group = f"reduce_add_coalesced {payload}"
    devices = topology.take(DEVICES)
    lists = [_create_tensors(payload, device) for device in devices]

    sums = time_call(library.comm.reduce_add_coalesced, lists, topology.ordinals[0])

    moved = (DEVICES + 1) * sum(t.nbytes for t in sums)
    _record_bandwidth(benchmark, copy_bandwidth, sums, moved)
    assert sums[-1][-1].item() == DEVICES


def _count_bytes_written(tensors, copies):
    # Count shared memory once: torch.nn.parallel makes one copy per device, even for a device that
    # occurs several times in `devices` (divergence CO-4).
    inputs = {tensor.data_ptr() for tensor in tensors}
    copied = [copy for device_copies in copies for copy in device_copies]
    written = {t.data_ptr(): t.nbytes for t in copied if t.data_ptr() not in inputs}
    return sum(written.values())


def _record_bandwidth(benchmark, copy_bandwidth, payload, moved_bytes):
    benchmark.extra_info["payload_bytes"] = sum(tensor.nbytes for tensor in payload)
    benchmark.extra_info["moved_bytes"] = moved_bytes
    share = moved_bytes / benchmark.stats.stats.median / copy_bandwidth
    benchmark.extra_info["copy_share"] = share
