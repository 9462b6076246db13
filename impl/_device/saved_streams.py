"""Use of the streams of a forward pass in its backward pass.

When autograd runs a node, it sets the current stream only on the device of the first output of the
node's forward. On all other devices the default stream is current. If backward copies a gradient
from another device, the copy would read it on the default stream. But the memory of the gradient
belongs to the stream that created it: as soon as the gradient is freed, the allocator may reuse
the memory on that stream, before the copy has read it. Nodes that only copy to other devices are
not affected: they read on the node's own stream, and autograd records the use of the memory.
"""

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from .._compat import exclude_from_compilation
from .device import current_device, has_streams, type_to_use
from .stream import current_stream, current_stream_by_device, set_current_streams

_Backward = Callable[..., Any]


def save_streams(ctx: Any, devices: Iterable[torch.device]) -> None:
    """Save the current streams of ``devices`` in ``ctx``."""
    ctx.streams = [*current_stream_by_device(devices).values()]


def wait_for_grad(grad: Tensor) -> Tensor:
    """Make the current stream of the running node wait for ``grad``, and return ``grad``.

    The next node waits only for the stream of this node. This stream may be on another device
    than ``grad``.
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
        set_current_streams(ctx.streams)
        try:
            return backward(ctx, *grads)
        finally:
            set_current_streams(before)

    return run
