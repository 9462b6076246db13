"""Restoration of the streams of a forward pass in its backward.

Autograd sets the current stream of a node only on the device of the node's first output. On all
other devices an autograd thread uses the default stream. A copy there would read a gradient on the
default stream, although its memory belongs to the stream that created it and is reused by that
stream as soon as the gradient is dropped. Nodes that only copy to other devices are not affected:
they read on the node's own stream, and autograd records the use of the memory.
"""

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from .._compat import exclude_from_compilation
from .device import accelerator_type, current_device, has_streams, is_of_type
from .stream import current_stream, current_streams, set_current_streams

_Backward = Callable[..., Any]


def save_streams(ctx: Any, devices: Iterable[torch.device]) -> None:
    """Save the current streams of ``devices`` in ``ctx``."""
    # A dictionary removes repeated devices.
    ctx.streams = current_streams(
        {each.index: None for each in devices if _has_current_stream(each)}
    )


def wait_for_grad(grad: Tensor) -> Tensor:
    """Make the current stream of the node wait for ``grad``, and return ``grad``.

    The next node waits for the stream of this node, which may be on another device than ``grad``.
    """
    if _has_current_stream(grad.device) and grad.device != current_device():
        current_stream(current_device()).wait_stream(current_stream(grad.device))
    return grad


def with_saved_streams(backward: _Backward) -> _Backward:
    """Wrap ``backward`` so that it runs with the streams of :func:`save_streams`."""

    @exclude_from_compilation
    @functools.wraps(backward)
    def run(ctx: Any, *grads: Any) -> Any:
        before = current_streams(stream.device_index for stream in ctx.streams)
        if before == ctx.streams:
            return backward(ctx, *grads)
        # The thread runs other nodes afterwards, so its streams are restored.
        set_current_streams(ctx.streams)
        try:
            return backward(ctx, *grads)
        finally:
            set_current_streams(before)

    return run


def _has_current_stream(device: torch.device) -> bool:
    return has_streams(device) and is_of_type(device, accelerator_type())
