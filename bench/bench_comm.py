"""The speed of broadcast_coalesced and reduce_add_coalesced, by payload.

Only on real accelerators: on the simulator the reference's primitives are stand-ins, not those of
torch.nn.parallel. Wall time on the host until every device is idle. `copy_share` is a bandwidth,
the bytes that the call must read and write over its time, as a share of the bandwidth of a large
copy on the first device.
"""

import time

import pytest
import torch

from spec_tests.harness.environment.topology import not_run

from .libraries import for_both_libraries

MIB = 2**20
DEVICES = 4
#: The number of tensors and the elements of each, in float32.
PAYLOADS = {
    "4KiB": (1, 1024),
    "3000x14KB": (3000, 3500),
    "25x16MiB": (25, 4 * MIB),
}


@pytest.fixture(scope="session")
def copy_bandwidth(topology):
    """Return the bytes per second, read and written, of a copy of 1 GiB; the median of ten."""
    if topology.accelerator == "sim":
        not_run("the reference's comm primitives are stand-ins on the simulator")
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
def bench_broadcast_coalesced(timed, benchmark, copy_bandwidth, library, topology, payload):
    benchmark.group = f"broadcast_coalesced {payload}"
    devices = topology.take(DEVICES)
    tensors = _create_tensors(payload, devices[0])

    copies = timed(library.comm.broadcast_coalesced, tensors, devices)

    _record_bytes(benchmark, copy_bandwidth, tensors, 2 * _bytes_written(tensors, copies))
    assert torch.equal(copies[-1][-1].cpu(), tensors[-1].cpu())


@for_both_libraries
@pytest.mark.parametrize("payload", PAYLOADS)
def bench_reduce_add_coalesced(timed, benchmark, copy_bandwidth, library, topology, payload):
    benchmark.group = f"reduce_add_coalesced {payload}"
    devices = topology.take(DEVICES)
    rows = [_create_tensors(payload, device) for device in devices]

    sums = timed(library.comm.reduce_add_coalesced, rows, topology.ordinals[0])

    moved = (DEVICES + 1) * sum(t.nbytes for t in sums)
    _record_bytes(benchmark, copy_bandwidth, sums, moved)
    assert sums[-1][-1].item() == DEVICES


def _bytes_written(tensors, copies):
    # If one device is named several times, the reference returns one copy for all (CO-4).
    sent = {tensor.data_ptr() for tensor in tensors}
    written = {t.data_ptr(): t.nbytes for row in copies for t in row if t.data_ptr() not in sent}
    return sum(written.values())


def _record_bytes(benchmark, copy_bandwidth, payload, moved):
    benchmark.extra_info["payload_bytes"] = sum(tensor.nbytes for tensor in payload)
    benchmark.extra_info["moved_bytes"] = moved
    share = moved / benchmark.stats.stats.median / copy_bandwidth
    benchmark.extra_info["copy_share"] = share
