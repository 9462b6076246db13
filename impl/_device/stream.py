"""The current streams of devices, and the stream for copies from the CPU."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch

__all__ = ["current_stream", "current_streams", "set_current_streams", "side_stream", "use_stream"]


@contextmanager
def use_stream(stream: torch.Stream) -> Iterator[None]:
    """Make ``stream`` and its device current inside a ``with`` block.

    Not by ``with stream``: that keeps what to restore in the stream's object, and two threads that
    have one stream current at the same time get each other's device and stream back.
    """
    device = torch.accelerator.current_device_index()
    before = torch.accelerator.current_stream(stream.device_index)
    torch.accelerator.set_stream(stream)
    try:
        yield
    finally:
        torch.accelerator.set_stream(before)
        torch.accelerator.set_device_index(device)


def current_stream(device: torch.device) -> torch.Stream:
    """Give the current stream of ``device``, a device of the accelerator."""
    return torch.accelerator.current_stream(device.index)


def current_streams(ordinals: Iterable[int]) -> list[torch.Stream]:
    """List the current streams of these devices of the accelerator."""
    return [*map(torch.accelerator.current_stream, ordinals)]


def set_current_streams(streams: Sequence[torch.Stream]) -> None:
    """Make each of ``streams`` its device's current one; the current device stays."""
    device = torch.accelerator.current_device_index() if streams else None
    for stream in streams:
        if stream != torch.accelerator.current_stream(stream.device_index):
            torch.accelerator.set_stream(stream)
    if device is not None:
        torch.accelerator.set_device_index(device)


def side_stream(device: torch.device) -> torch.Stream:
    """Give the one stream of ``device`` that copies from the CPU run on.

    The same stream every time, to every thread: memory that a stream has allocated is reused by
    that stream only, so a fresh stream per call would never reuse any.
    """
    known = _side_streams.get(device)
    # Of two threads that come first, both get the stream of the one that is quicker.
    return known or _side_streams.setdefault(device, torch.Stream(device))


_side_streams: dict[torch.device, torch.Stream] = {}
