"""Which devices a data-parallel module computes on."""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from .._compat import exclude_from_compilation
from .device import (
    CPU,
    DeviceLike,
    all_devices,
    as_device_or_current,
    device_index,
    is_cpu,
    numbered_type,
)

__all__ = ["Placement", "choose_devices"]

#: An ordinal of the accelerator, unchecked, or the CPU.
DeviceId = int | torch.device


class Placement(NamedTuple):
    """The devices of one data-parallel module, none of which need exist.

    Attributes:
        device_ids: Ordinals of the accelerator in the order of the chunks, or the CPU as often
            as there are to be chunks.
        output_device: Where outputs are wanted; -1 is an old name of the CPU.
        source: The first of the devices, where the module must be.
    """

    device_ids: list[DeviceId]
    output_device: DeviceId
    source: torch.device


@exclude_from_compilation
def choose_devices(
    device_ids: Sequence[DeviceLike] | None, output_device: DeviceLike | None
) -> Placement | None:
    """Work out the devices that a caller means.

    Args:
        device_ids: Devices of the accelerator, or the CPU any number of times; None for all
            devices of the accelerator.
        output_device: Any device; None for the first of ``device_ids``.

    Returns:
        The devices, which may be a single one; None where there is no accelerator that numbers its
        devices, unless the CPU is asked for.

    Raises:
        IndexError: ``device_ids`` is empty.
        ValueError: The CPU is named beside the accelerator's devices.
        RuntimeError: A string names no device.
    """
    are_cpu = _are_cpu_only(device_ids)
    kind = None if are_cpu else numbered_type()
    if kind is None and not are_cpu:
        return None
    listed = all_devices() if device_ids is None else device_ids
    wanted = _device_id(listed[0] if output_device is None else output_device)
    if kind is None:
        return Placement([CPU] * len(listed), wanted, CPU)
    ordinals = [device_index(_device_id(device)) for device in listed]
    return Placement([*ordinals], wanted, torch.device(kind, ordinals[0]))


def _device_id(device: DeviceLike | None) -> DeviceId:
    if isinstance(device, int):
        return device
    found = as_device_or_current(device)
    return found if is_cpu(found) else found.index


def _are_cpu_only(device_ids: Sequence[DeviceLike] | None) -> bool:
    listed = device_ids if isinstance(device_ids, (list, tuple)) else ()
    return len(listed) > 0 and all(map(is_cpu, listed))
