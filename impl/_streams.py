"""Current streams, side streams for copies from the CPU, and the streams of a backward pass."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

import torch
from torch import Tensor

from ._devices import (
    accelerator_type,
    call_on_device,
    check_exists,
    current_device,
    has_streams,
    runtime_of,
    runtimes_with_streams,
    type_to_use,
)
from ._settings import call_with_setting
from ._torch_private import exclude_from_compilation

_R = TypeVar("_R")


def call_on_stream(stream: torch.Stream, function: Callable[..., _R], *args: Any) -> _R:
    """Call ``function(*args)`` while ``stream`` and its device are current.

    ``with stream`` stores the state to restore in the stream object, so two threads with the same
    current stream would restore each other's.
    """
    streams = {stream: current_stream(stream.device)}
    result: _R = call_on_device(stream.device, call_on_streams, streams, function, *args)
    return result


def call_on_streams(
    streams: Mapping[torch.Stream, torch.Stream], function: Callable[..., _R], *args: Any
) -> _R:
    """Call ``function(*args)`` while the keys of ``streams`` are current, each on its device.

    Each value is the stream to restore on this device. The current device does not change.
    """
    runtimes = [*runtimes_with_streams(stream.device for stream in streams).values()]
    setters = [each.set_stream for each in runtimes]
    distinct = {id(each): each for each in runtimes}.values()
    devices = [(each.set_device_index, each.current_device_index()) for each in distinct]

    def set_streams(streams: Iterable[torch.Stream]) -> None:
        for set_stream, stream in zip(setters, streams, strict=True):
            set_stream(stream)
        for set_device_index, index in devices:  # `set_stream` has changed the current devices.
            set_device_index(index)

    return call_with_setting(set_streams, [*streams], [*streams.values()], function, *args)


def is_stream(value: object) -> bool:
    """Return whether ``value`` is a stream, also of a class that a back end has replaced."""
    return isinstance(value, torch.Stream) or (
        accelerator_type() is not None
        and isinstance(value, type(torch.accelerator.current_stream()))
    )


def current_stream(device: torch.device) -> torch.Stream:
    """Return the current stream of ``device``, a device of an accelerator that exists."""
    stream: torch.Stream = runtime_of(device).current_stream(device.index)
    return stream


def current_stream_by_device(
    devices: Iterable[torch.device],
) -> dict[torch.device, torch.Stream]:
    """Return the current streams of ``devices`` that have streams. Check that these exist."""
    runtimes = runtimes_with_streams(devices).items()
    return {device: each.current_stream(device.index) for device, each in runtimes}


def set_current_streams(streams: Sequence[torch.Stream]) -> None:
    """Make each of ``streams`` current on its device. The current device does not change."""
    for stream in streams:
        if stream != current_stream(stream.device):
            set_current_stream(stream)


def set_current_stream(stream: torch.Stream) -> None:
    """Make ``stream`` current on its device. The current device does not change."""
    accelerator = runtime_of(stream.device)
    device = accelerator.current_device_index()
    accelerator.set_stream(stream)
    accelerator.set_device_index(device)


def side_stream(device: torch.device) -> torch.Stream | None:
    """Return the stream of ``device`` for copies from the CPU; None if side streams do not work.

    All calls and threads share one stream per device. The allocator reuses memory only on the
    stream that allocated it, so a new stream for each call would never reuse memory. Raise
    RuntimeError if there is no such device.
    """
    known = _side_streams.get(device)
    if known is not None:
        return known
    if not has_streams(device):
        return None
    check_exists(device)
    if not _has_side_streams(device):
        return None
    # If two threads both create a first stream, `setdefault` returns the same one to both.
    return _side_streams.setdefault(device, torch.Stream(device))


@cache
def _has_side_streams(device: torch.device) -> bool:
    """Return whether the operations that a copy on a side stream needs work on ``device``."""
    try:
        stream = torch.Stream(device)
        stream.wait_stream(stream)
        torch.empty(0, device=device).record_stream(stream)
    except (RuntimeError, AttributeError):  # A NotImplementedError is a RuntimeError.
        return False
    return True


_side_streams: dict[torch.device, torch.Stream] = {}


# Use of the streams of a forward pass in its backward pass.
#
# When autograd runs a node, it sets the current stream only on the device of the first output of
# the node's forward. On all other devices the default stream is current. If backward copies a
# gradient from another device, the copy would read it on the default stream. But the memory of
# the gradient belongs to the stream that created it: as soon as the gradient is freed, the
# allocator may reuse the memory on that stream, before the copy has read it. Nodes that only
# copy to other devices are not affected: they read on the node's own stream, and autograd
# records the use of the memory.


_Backward = Callable[..., Any]


def save_streams(ctx: Any, devices: Iterable[torch.device]) -> None:
    """Save the current streams of ``devices`` in ``ctx``."""
    ctx.streams = [*current_stream_by_device(devices).values()]


def wait_for_grad(grad: Tensor) -> Tensor:
    """Make the current stream of the running node wait for ``grad``, and return ``grad``.

    The next node waits only for this stream, which may be on another device than ``grad``.
    """
    if has_streams(grad.device):
        here = current_device(type_to_use(grad.device))
        if grad.device != here:
            current_stream(here).wait_stream(current_stream(grad.device))
    return grad


def with_saved_streams(backward: _Backward) -> _Backward:
    """Decorate ``backward`` to run on the streams that :func:`save_streams` saved in ``ctx``."""

    @exclude_from_compilation
    @functools.wraps(backward)
    def run(ctx: Any, *grads: Any) -> Any:
        before = [current_stream(stream.device) for stream in ctx.streams]
        if before == ctx.streams:
            return backward(ctx, *grads)
        # Restore the streams afterwards, because this thread also runs other nodes.
        return call_with_setting(set_current_streams, ctx.streams, before, backward, ctx, *grads)

    return run
