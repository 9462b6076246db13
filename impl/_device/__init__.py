"""Devices and streams: conversion of device arguments, current devices, current streams."""

from .device import (
    CPU,
    DeviceLike,
    accelerator_in_use,
    accelerator_type,
    alignment_on,
    as_device_or_current,
    as_target,
    call_on_device,
    check_device_type,
    current_device,
    device_at,
    device_count,
    device_index,
    has_streams,
    is_cpu,
    is_cuda,
    is_minus_one,
    is_of_type,
    is_on_accelerator,
    is_on_cpu,
    type_to_use,
)
from .placement import (
    DeviceId,
    Placement,
    check_balance,
    choose_devices,
    warn_of_ignored_devices,
)
from .saved_streams import save_streams, wait_for_grad, with_saved_streams
from .stream import (
    call_on_stream,
    call_on_streams,
    current_stream,
    current_stream_by_device,
    current_streams,
    is_stream,
    set_current_streams,
    side_stream,
)
