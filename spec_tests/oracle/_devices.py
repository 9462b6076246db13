"""Conversion of device arguments to ``torch.device``."""

import torch
from torch import Tensor


def as_device(device: torch.device | int | str | None) -> torch.device:
    """Return ``device`` as a ``torch.device``. -1 means the CPU, None the current device."""
    if device is None:
        device = torch.accelerator.current_device_index()
    if isinstance(device, int):
        return torch.device("cpu") if device < 0 else torch.device(_accelerator_type(), device)
    device = torch.device(device)
    if device.index is None and device.type != "cpu":
        return torch.device(device.type, torch.accelerator.current_device_index())
    return device


def all_devices() -> list[torch.device]:
    """Return all devices of the accelerator."""
    return [
        torch.device(_accelerator_type(), ordinal)
        for ordinal in range(torch.accelerator.device_count())
    ]


def _accelerator_type() -> str:
    accelerator = torch.accelerator.current_accelerator()
    assert accelerator is not None
    return accelerator.type


def leave(tensor: Tensor, device: torch.device) -> Tensor:
    """Return ``tensor``, or a copy on the CPU if it will be copied to another accelerator.

    So a back end whose copies between devices are wrong does not change the expected values.
    """
    if tensor.device == device or tensor.device.type != device.type:
        return tensor
    return tensor.cpu()
