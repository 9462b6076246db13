"""Selection of the devices of a data-parallel module."""

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
    indexed_accelerator_type,
    is_cpu,
)

#: An ordinal of the accelerator, or the CPU. A device with this ordinal need not exist.
DeviceId = int | torch.device


class Placement(NamedTuple):
    """The devices of one data-parallel module. The devices need not exist."""

    device_ids: list[DeviceId]  # In the order of the chunks.
    output_device: DeviceId  # -1 is a deprecated name of the CPU.
    source: torch.device  # The first device. The module must be on it.


@exclude_from_compilation
def choose_devices(
    device_ids: Sequence[DeviceLike] | None, output_device: DeviceLike | None
) -> Placement | None:
    """Convert the device arguments of ``DataParallel`` or ``data_parallel``.

    Return None if no accelerator has device indices and ``device_ids`` does not name the CPU.

    Raises:
        IndexError: ``device_ids`` is empty.
        ValueError: ``device_ids`` mixes the CPU and the accelerator's devices.
        RuntimeError: A device string is invalid.
    """
    are_cpu = _are_cpu_only(device_ids)
    kind = None if are_cpu else indexed_accelerator_type()
    if kind is None and not are_cpu:
        return None
    devices = all_devices() if device_ids is None else device_ids
    output = _as_device_id(devices[0] if output_device is None else output_device)
    if kind is None:
        return Placement([CPU] * len(devices), output, CPU)
    ordinals = [device_index(_as_device_id(device)) for device in devices]
    return Placement([*ordinals], output, torch.device(kind, ordinals[0]))


def _as_device_id(device: DeviceLike | None) -> DeviceId:
    if isinstance(device, int):
        return device
    found = as_device_or_current(device)
    return found if is_cpu(found) else found.index


def _are_cpu_only(device_ids: Sequence[DeviceLike] | None) -> bool:
    devices = device_ids if isinstance(device_ids, (list, tuple)) else ()
    return len(devices) > 0 and all(map(is_cpu, devices))
