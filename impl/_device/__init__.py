"""Devices and streams: what callers may write for them, and which are current.

It imports ``_compat``.
"""

from .device import (
    CPU,
    DeviceLike,
    accelerator_in_use,
    accelerator_type,
    alignment_on,
    as_device,
    as_device_or_current,
    as_target,
    check_accelerated,
    current_device,
    device_at,
    device_index,
    has_streams,
    is_cpu,
    is_cuda,
    is_minus_one,
    is_of_type,
    is_on_cpu,
    use_device,
)
from .placement import DeviceId, Placement, choose_devices
from .saved_streams import hand_over, keep_streams, on_kept_streams
from .stream import current_stream, current_streams, set_current_streams, side_stream, use_stream

__all__ = [
    "CPU",
    "DeviceId",
    "DeviceLike",
    "Placement",
    "accelerator_in_use",
    "accelerator_type",
    "alignment_on",
    "as_device",
    "as_device_or_current",
    "as_target",
    "check_accelerated",
    "choose_devices",
    "current_device",
    "current_stream",
    "current_streams",
    "device_at",
    "device_index",
    "hand_over",
    "has_streams",
    "is_cpu",
    "is_cuda",
    "is_minus_one",
    "is_of_type",
    "is_on_cpu",
    "keep_streams",
    "on_kept_streams",
    "set_current_streams",
    "side_stream",
    "use_device",
    "use_stream",
]
