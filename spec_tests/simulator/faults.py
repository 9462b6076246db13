"""Ways in which real back ends have misbehaved, switched on one at a time."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from . import native

__all__ = ["FAULTS", "fault"]

#: By name, with where it was met.
FAULTS = {
    "zero-is-current": "ordinal 0 is taken for the current device (pytorch/pytorch 143239)",
    "device-left": "a copy between devices leaves the receiver current (torch-xpu-ops 2706)",
    "dirty-memory": "fresh memory is not zero",
    "no-memory": "one device has no memory left",
    "garbled-peers": "copies between devices deliver zeros (pytorch/pytorch 107374)",
}


@contextmanager
def fault(name: str, *, device: int = 0) -> Iterator[None]:
    """Let the devices misbehave inside the block, in all threads.

    Afterwards the device is current again that was so before.

    Args:
        name: One of ``FAULTS``.
        device: The ordinal of the device that has no memory left.

    Raises:
        ValueError: There is no such fault.
    """
    before = torch.accelerator.current_device_index()
    native.extension().set_fault(name, device)
    try:
        yield
    finally:
        native.extension().set_fault("", -1)
        torch.accelerator.set_device_index(before)
