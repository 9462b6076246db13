"""Selection of the devices of a data-parallel module, and comparison of their sizes."""

import reprlib
import warnings
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import nn

from ._arguments import argument, as_list
from ._devices import (
    CPU,
    DeviceLike,
    accelerator_type,
    as_device_or_current,
    as_target,
    check_exists,
    device_at,
    device_count,
    device_index,
    has_indices,
    is_cpu,
    is_of_type,
    is_ordinal,
    type_to_use,
)
from ._torch_private import exclude_from_compilation
from ._warnings import warn_caller

#: A warning is issued if the ratio of the memory, or of the cores, of two devices is smaller.
_BALANCED = 0.75

_IMBALANCE = """
    There is an imbalance between your GPUs. You may want to exclude GPU {} which
    has less than 75% of the memory or cores of GPU {}. You can do so by setting
    the device_ids argument to DataParallel, or by setting the CUDA_VISIBLE_DEVICES
    environment variable."""

#: The note of an error of ``device_ids`` that name the CPU and other devices.
_MIXED = "device_ids, which mixes the CPU with other devices"

#: An ordinal of the accelerator, a device of a second accelerator, or the CPU. The device need not
#: exist.
DeviceId = int | torch.device


class Placement(NamedTuple):
    """The devices of one data-parallel module. The devices need not exist."""

    device_ids: list[DeviceId]  # In the order of the chunks.
    output_device: DeviceId  # -1 is a deprecated name of the CPU.
    source: torch.device  # The first device. The module must be on it.


@exclude_from_compilation
def choose_devices(
    device_ids: Sequence[DeviceLike] | None,
    output_device: DeviceLike | None,
    module: nn.Module | None = None,
) -> Placement | None:
    """Convert the device arguments of ``DataParallel`` or ``data_parallel`` to a placement.

    If ``device_ids`` is None, all devices are used: those of the accelerator that has the first
    parameter of ``module``, or those of PyTorch's accelerator if the parameter is on the CPU.

    Return None if no accelerator has device indices and ``device_ids`` does not name the CPU.

    Raises:
        IndexError: ``device_ids`` is empty.
        ValueError: ``device_ids`` mixes the CPU and other devices.
        RuntimeError: A device string is invalid, or ``device_ids`` is on the CPU, and
            ``output_device`` on an accelerator that does not exist.
        TypeError: ``device_ids`` is not a sequence, or an object names no device.
    """
    if device_ids is not None:
        if isinstance(device_ids, (str, torch.device)) or is_ordinal(device_ids):
            raise TypeError(
                "device_ids must be a sequence of devices, such as [0, 1] or ['cpu', 'cpu'], "
                f"not {device_ids!r}"
            )
        device_ids = as_list("device_ids", device_ids)  # It may be an iterator.
        if device_ids and all(map(is_cpu, device_ids)):
            with argument(f"output_device={reprlib.repr(output_device)}"):
                output = _as_device_id(CPU if output_device is None else output_device)
                as_target(output, warns=False)  # Raises RuntimeError without an accelerator.
            return Placement([CPU] * len(device_ids), output, CPU)
    first = next(iter(device_ids or ()), None)
    if device_ids is None and isinstance(module, nn.Module):
        first = next((parameter.device for parameter in module.parameters()), None)
    device_type = type_to_use(first)
    if device_type is None or not has_indices(device_type):
        with argument(_MIXED):
            for device in filter(is_cpu, device_ids or ()):
                device_index(device)  # Raises ValueError.
        return None
    if device_ids is None:
        device_ids = [
            torch.device(device_type, ordinal) for ordinal in range(device_count(device_type))
        ]
    with argument(_MIXED if any(map(is_cpu, device_ids)) else "device_ids"):
        ids = [*map(_as_device_id, device_ids)]
        ordinals = [*map(device_index, ids)]  # Raises ValueError for the CPU.
        source = device_at(ordinals[0], device_type)
    output = _as_device_id(device_ids[0] if output_device is None else output_device)
    return Placement(ids, output, source)


def check_devices_exist(placement: Placement) -> None:
    """Raise RuntimeError if a device of ``placement`` does not exist."""
    output = as_target(placement.output_device, warns=False)
    for device in (*map(as_device_or_current, placement.device_ids), output):
        if not is_cpu(device):
            check_exists(device)


def check_balance(device_ids: Sequence[DeviceLike]) -> None:
    """Warn, at the caller of the calling function, of devices that differ in memory or cores."""
    ordinals = [device_index(device, optional=True) for device in device_ids]
    device_type = type_to_use(next(iter(device_ids), None))
    get_properties = torch.get_device_module(device_type).get_device_properties
    properties = [*map(get_properties, ordinals)]
    for sizes in (
        [device.total_memory for device in properties],
        [device.multi_processor_count for device in properties],
    ):
        if min(sizes) < _BALANCED * max(sizes):
            small, large = (ordinals[sizes.index(size)] for size in (min(sizes), max(sizes)))
            warnings.warn(_IMBALANCE.format(small, large), stacklevel=3)
            return


def warn_of_ignored_devices() -> None:
    """Warn that ``device_ids`` has no effect."""
    warn_caller(
        "device_ids is ignored, because there is no accelerator with device indices: DataParallel "
        "only calls the module. Name the CPU for replicas on the CPU: device_ids=['cpu', 'cpu']"
    )


def _as_device_id(device: DeviceLike | None) -> DeviceId:
    """Return an ordinal if ``device`` is of PyTorch's accelerator, else a ``torch.device``."""
    if is_ordinal(device):
        return int(device)
    resolved = as_device_or_current(device)
    return resolved.index if is_of_type(resolved, accelerator_type()) else resolved
