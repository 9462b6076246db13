"""Which devices a data-parallel module computes on."""

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import nn

from ._devices import (
    CPU,
    DeviceLike,
    all_devices,
    as_device_or_current,
    device_index,
    is_cpu,
    is_cuda,
    numbered_type,
)
from ._internals import exclude_from_compilation
from ._tree import collect_tree

__all__ = ["Placement", "check_source", "choose_devices", "warn_of_imbalance"]

#: Of two devices, the smaller should have this much of what the larger has.
_BALANCED = 0.75

_IMBALANCE = """
    There is an imbalance between your GPUs. You may want to exclude GPU {} which
    has less than 75% of the memory or cores of GPU {}. You can do so by setting
    the device_ids argument to DataParallel, or by setting the CUDA_VISIBLE_DEVICES
    environment variable."""

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


@exclude_from_compilation
def check_source(module: nn.Module, source: torch.device) -> None:
    """Refuse a module that is not where its replicas are copied from.

    Raises:
        RuntimeError: A parameter or buffer is on another device than ``source``.
    """
    # `module.parameters()` takes three times as long, to give names.
    tree = collect_tree(module)
    for tensor in (*tree.parameters, *tree.buffers):
        if tensor.device != source:
            raise RuntimeError(
                "module must have its parameters and buffers on device "
                f"{source} (device_ids[0]) but found one of them on device: {tensor.device}"
            )


def warn_of_imbalance(placement: Placement) -> None:
    """Warn if one of several CUDA devices is much smaller than another."""
    if not is_cuda(placement.source):
        return
    properties = [torch.cuda.get_device_properties(device) for device in placement.device_ids]
    for sizes in (
        [device.total_memory for device in properties],
        [device.multi_processor_count for device in properties],
    ):
        if min(sizes) < _BALANCED * max(sizes):
            small, large = (
                placement.device_ids[sizes.index(size)] for size in (min(sizes), max(sizes))
            )
            warnings.warn(_IMBALANCE.format(small, large), stacklevel=3)
            return


def _device_id(device: DeviceLike | None) -> DeviceId:
    if isinstance(device, int):
        return device
    found = as_device_or_current(device)
    return found if is_cpu(found) else found.index


def _are_cpu_only(device_ids: Sequence[DeviceLike] | None) -> bool:
    listed = device_ids if isinstance(device_ids, (list, tuple)) else ()
    return len(listed) > 0 and all(map(is_cpu, listed))
