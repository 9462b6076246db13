"""Conversion of device arguments."""

import torch


def as_device(device: torch.device | int | str | None) -> torch.device:
    """Return the device of an ordinal, a text or a device; -1 is the CPU, None the current one."""
    if device is None:
        device = torch.accelerator.current_device_index()
    if isinstance(device, int):
        return torch.device("cpu") if device < 0 else torch.device(_kind(), device)
    device = torch.device(device)
    if device.index is None and device.type != "cpu":
        return torch.device(device.type, torch.accelerator.current_device_index())
    return device


def all_devices() -> list[torch.device]:
    """Return every device of the accelerator."""
    return [torch.device(_kind(), ordinal) for ordinal in range(torch.accelerator.device_count())]


def _kind() -> str:
    found = torch.accelerator.current_accelerator()
    assert found is not None
    return found.type
