"""The streams of a forward pass, current again in its backward.

Autograd makes only one stream current for a node: that of its first output's device. On every
other device a thread of autograd is on the default stream. A copy from there would read on the
default stream a gradient whose memory belongs to the stream that made it, and is that stream's to
reuse as soon as the gradient is dropped. Nodes that only copy to other devices need none of this:
they read on the node's own stream, and autograd tells the memory who uses it next.
"""

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from .._compat import exclude_from_compilation
from .device import accelerator_type, current_device, has_streams, is_of_type
from .stream import current_stream, current_streams, set_current_streams

__all__ = ["hand_over", "keep_streams", "on_kept_streams"]

_Backward = Callable[..., Any]


def keep_streams(ctx: Any, devices: Iterable[torch.device]) -> None:
    """Note in ``ctx`` the current streams of ``devices``."""
    # A dictionary, not a list: a device may come twice.
    ctx.streams = current_streams({each.index: None for each in devices if _has_current(each)})


def hand_over(grad: Tensor) -> Tensor:
    """Let whoever gets ``grad`` from autograd find it ready, and return it.

    The receiver waits for the stream of the node, which may be another device's than that of
    ``grad``.
    """
    if _has_current(grad.device) and grad.device != current_device():
        current_stream(current_device()).wait_stream(current_stream(grad.device))
    return grad


def on_kept_streams(backward: _Backward) -> _Backward:
    """Make the streams that ``keep_streams`` has noted current while ``backward`` runs."""

    @exclude_from_compilation
    @functools.wraps(backward)
    def run(ctx: Any, *grads: Any) -> Any:
        before = current_streams(stream.device_index for stream in ctx.streams)
        if before == ctx.streams:
            return backward(ctx, *grads)
        # The thread goes on to other nodes, so it gets its own streams back.
        set_current_streams(ctx.streams)
        try:
            return backward(ctx, *grads)
        finally:
            set_current_streams(before)

    return run


def _has_current(device: torch.device) -> bool:
    return has_streams(device) and is_of_type(device, accelerator_type())
