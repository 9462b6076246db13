"""Helpers for tests that use side streams and never wait for a device."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext

import torch
from torch import Tensor

from spec_tests import simulator
from spec_tests.checks.stream_log import CopyLog
from spec_tests.failure import noted_error
from spec_tests.machine import capabilities
from spec_tests.machine.devices import (
    SYNCHRONOUS,
    Topology,
    not_run,
    queue_work,
    race_failure,
)

#: Milliseconds by which real devices delay each queued write and copy of a test of order.
DELAY = 20.0


def require_order() -> None:
    """End the test as not-run if no early read on the devices gets an old value."""
    if not capabilities.offers("asynchronous-operators"):
        not_run(SYNCHRONOUS)


@contextmanager
def on_side_streams(topology: Topology) -> Iterator[None]:
    """Make a new stream current on every device inside the block.

    Real devices delay the copies in the block; see `late_copies`.

    The new stream first waits for the former stream. After the block, the former stream waits for
    the new stream. The current device stays the same. The host does not wait.
    """
    require_order()
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
        with _delay_copies(topology):
            yield
    for side, stream in zip(side_streams, before, strict=True):
        stream.wait_stream(side)


def write_late(device: torch.device) -> tuple[Tensor, torch.Stream]:
    """Return two zeros, and a new stream that writes ones to them after `DELAY` milliseconds."""
    written, side = torch.zeros(2, device=device), torch.Stream(device)
    side.wait_stream(torch.accelerator.current_stream(device.index))
    with side:
        queue_work(device, DELAY)
        written.fill_(1)
    return written, side


@contextmanager
def fail_on_races(topology: Topology) -> Iterator[None]:
    """Fail if accesses to device memory race inside the block, also with ``--no-races``."""
    if topology.accelerator != "sim":
        not_run("only the simulated accelerator detects races")
    with simulator.races() as found:
        yield
    _require_none(found)


@contextmanager
def late_copies(topology: Topology) -> Iterator[None]:
    """Delay copies inside the block until the host or a stream waits. Fail if accesses race.

    The race detector does not see reads on the host, but a host read that does not wait for a copy
    gets NaN. A real accelerator does work of `DELAY` milliseconds before each copy.
    """
    require_order()
    if topology.accelerator != "sim":
        with _delay_copies(topology):
            yield
        return
    with simulator.races(late_copies=0) as found:
        yield
    _require_none(found)


def _require_none(found: Sequence[simulator.Race]) -> None:
    if found:
        raise noted_error(race_failure(found))


def _delay_copies(topology: Topology) -> AbstractContextManager[object]:
    """Return a block in which a real accelerator does work before each copy."""
    return nullcontext() if topology.accelerator == "sim" else CopyLog(delay=DELAY)


def queued_arange(topology: Topology, slot: int, *shape: int) -> Tensor:
    """Queue a late kernel on the device of ``slot``. Return the tensor 1, 2, 3, ... it writes."""
    require_order()
    device = topology.device(slot)
    numbers = torch.arange(1.0, torch.Size(shape).numel() + 1).reshape(shape).to(device)
    queue_work(device, DELAY)
    return numbers * 1


def queued_copies(*tensors: Tensor) -> list[Tensor]:
    """Return copies of ``tensors``, which late kernels on the current streams write."""
    require_order()
    for device in {tensor.device for tensor in tensors if tensor.device.type != "cpu"}:
        queue_work(device, DELAY)
    return [tensor.detach() * 1 for tensor in tensors]
