"""Helpers for tests that use side streams and never wait for a device."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor

from spec_tests import simulator
from spec_tests.harness.environment.topology import Topology, not_run

__all__ = ["fail_on_races", "late_copies", "on_side_streams", "queued_arange", "queued_copies"]


@contextmanager
def on_side_streams(topology: Topology) -> Iterator[None]:
    """Make a new stream current on every device inside the block.

    The new stream first waits for the former stream. After the block, the former stream waits for
    the new stream. The current device stays the same. The host does not wait.
    """
    devices = list(dict.fromkeys(topology.devices))
    before = [torch.accelerator.current_stream(device) for device in devices]
    side_streams = [torch.Stream(device) for device in devices]
    current = torch.accelerator.current_device_index()
    for side, stream in zip(side_streams, before, strict=True):
        side.wait_stream(stream)
    with ExitStack() as streams:
        for side in side_streams:
            streams.enter_context(side)
        torch.accelerator.set_device_index(current)
        yield
    for side, stream in zip(side_streams, before, strict=True):
        stream.wait_stream(side)


@contextmanager
def fail_on_races(topology: Topology) -> Iterator[None]:
    """Fail if accesses to device memory race inside the block, also with ``--no-races``."""
    if topology.accelerator != "sim":
        not_run("only the simulated accelerator detects races")
    with simulator.races() as found:
        yield
    # An explicit message, because pytest does not rewrite assertions in an installed package.
    assert not found, str(found[0])


@contextmanager
def late_copies(topology: Topology) -> Iterator[None]:
    """Delay copies inside the block until the host or a stream waits. Fail if accesses race.

    The race detector does not see reads on the host, but a host read that does not wait for a copy
    gets NaN. On a real accelerator, do nothing: copies there are asynchronous.
    """
    if topology.accelerator != "sim":
        yield
        return
    with simulator.races(late_copies=0) as found:
        yield
    assert not found, str(found[0])


def queued_arange(topology: Topology, slot: int, *shape: int) -> Tensor:
    """Queue a kernel that writes 1, 2, 3, ... on the device of ``slot``. Return the tensor."""
    extent = torch.Size(shape).numel()
    return torch.arange(1.0, extent + 1, device=topology.device(slot)).reshape(shape) * 1


def queued_copies(*tensors: Tensor) -> list[Tensor]:
    """Return copies of ``tensors``, written by kernels that are queued on the current streams."""
    return [tensor.detach() * 1 for tensor in tensors]
