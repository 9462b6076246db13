"""Conversion of device arguments, and the current device.

No other module compares device types, or treats -1 as the CPU, its deprecated meaning. "The
accelerator" is the device type that ``torch.accelerator`` reports at the time of the call. An
integer is an ordinal of the accelerator.
"""

import warnings
from contextlib import AbstractContextManager
from functools import cache

import torch
from torch import Tensor

DeviceLike = int | str | torch.device

CPU = torch.device("cpu")


def accelerator_type() -> str | None:
    """Return the type of the accelerator, such as ``"cuda"``, or None if none is available."""
    accelerator = torch.accelerator.current_accelerator()
    return None if accelerator is None else _usable_type(accelerator)


@cache
def _usable_type(accelerator: torch.device) -> str | None:
    """Return the type of ``accelerator``, or None if its driver reports no device.

    The result is cached, because queries of the driver are slow.
    """
    # A back end may lack this function. `torch.accelerator` itself only needs `device_count`.
    is_available = getattr(torch.get_device_module(accelerator), "is_available", None)
    usable = device_count() > 0 if is_available is None else is_available()
    return accelerator.type if usable else None


def device_count() -> int:
    """Return the number of the accelerator's devices; 0 if there is no accelerator.

    Raise RuntimeError if the back end does not offer this number.
    """
    try:
        return torch.accelerator.device_count()
    except AttributeError as error:  # torch.accelerator calls the back end's device module.
        raise RuntimeError(f"the back end cannot count its devices: {error}") from error


def indexed_accelerator_type() -> str | None:
    """Return the type of the accelerator; None if its devices have no indices (Apple's "mps")."""
    kind = accelerator_type()
    return None if kind == "mps" else kind


def accelerator_in_use() -> str | None:
    """Return the type of the accelerator if this process has initialized it.

    The result is None in a forked child, which cannot use the context of its parent.
    """
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is None:
        return None
    is_initialized = getattr(torch.get_device_module(accelerator), "is_initialized", bool)
    return accelerator.type if is_initialized() else None


def is_cpu(device: DeviceLike | None) -> bool:
    """Return whether ``device`` is the CPU (``"cpu"``, ``"cpu:0"``, a ``torch.device``)."""
    if isinstance(device, str):
        device = torch.device(device)
    return isinstance(device, torch.device) and device.type == "cpu"


def is_cuda(device: torch.device) -> bool:
    """Return whether ``device`` is a CUDA device. Only these report their memory and cores."""
    return device.type == "cuda"


def alignment_on(device: torch.device) -> int:
    """Return the alignment of new tensors on ``device`` in bytes.

    CUDA's allocator aligns to 512 bytes, PyTorch's CPU allocator to 64. For other accelerators 64
    bytes are assumed.
    """
    return 512 if is_cuda(device) else 64


def is_on_cpu(tensor: Tensor) -> bool:
    return tensor.device.type == "cpu"


def is_minus_one(device: DeviceLike | None) -> bool:
    """Return whether ``device`` is -1, the deprecated name of the CPU as a target."""
    return device == -1


def is_of_type(device: torch.device, device_type: str | None) -> bool:
    """Return whether ``device`` is of the type ``device_type``; False for None."""
    return device.type == device_type


def check_device_type(device: torch.device, accelerator: str) -> None:
    """Raise AssertionError if ``device`` is not of the type ``accelerator``."""
    if device.type != accelerator:
        raise AssertionError(
            f"Expected current accelerator type {accelerator} to match device type {device.type}"
        )


def device_index(device: DeviceLike) -> int:
    """Return the ordinal of ``device``, which may be negative or larger than any ordinal.

    Raise ValueError if ``device`` is the CPU or has no index, RuntimeError for an invalid string.
    """
    if isinstance(device, int):
        return int(device)
    if isinstance(device, str):
        device = torch.device(device)
    if is_cpu(device):
        raise ValueError(f"Expected a non cpu device, but got: {device}")
    index = device.index if isinstance(device, torch.device) else None
    if index is None:
        raise ValueError(
            f"Expected a torch.device with a specified index or an integer, but got:{device}"
        )
    return index


def device_at(ordinal: int) -> torch.device:
    """Return the device of the accelerator with this ordinal.

    Raise RuntimeError if ``ordinal`` is negative or there is no accelerator.
    """
    if ordinal < 0:
        raise RuntimeError(f"Expected non-negative device index, but got {ordinal}")
    return torch.device(_require_accelerator(), ordinal)


def as_device(device: DeviceLike) -> torch.device:
    """Convert ``device`` to a device of the accelerator with an index, or to the CPU.

    Raise the errors of :func:`device_index` and :func:`device_at`.
    """
    return CPU if is_cpu(device) else device_at(device_index(device))


def as_device_or_current(device: DeviceLike | None) -> torch.device:
    """Convert ``device`` as :func:`as_device` does. If it has no index, use the current device."""
    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, int):
        return device_at(device)
    if is_cpu(device):
        return CPU
    index = device.index if isinstance(device, torch.device) else None
    return current_device() if index is None else device_at(index)


def as_target(device: DeviceLike | None, *, warns: bool = True) -> torch.device:
    """Convert ``device`` as :func:`as_device_or_current` does, and the deprecated -1 to the CPU.

    With ``warns``, -1 issues a FutureWarning that points to the caller of the calling function.
    """
    if not is_minus_one(device):
        return as_device_or_current(device)
    if warns:
        warnings.warn(
            "Using -1 to represent CPU tensor is deprecated. Please use a device object or string "
            'instead, e.g., "cpu".',
            FutureWarning,
            stacklevel=3,
        )
    return CPU


def current_device() -> torch.device:
    """Return the current device of the accelerator. Raise RuntimeError if there is none."""
    return torch.device(_require_accelerator(), torch.accelerator.current_device_index())


def all_devices() -> list[torch.device]:
    """Return all devices of the accelerator, or an empty list if there is no accelerator."""
    return [*map(device_at, range(device_count()))]


def use_device(device: torch.device) -> AbstractContextManager[None]:
    """Make ``device`` current inside a ``with`` block. For the CPU the block has no effect."""
    # The index of the CPU is None. For None `torch.accelerator.device_index` changes nothing.
    return torch.accelerator.device_index(device.index)


def has_streams(device: torch.device) -> bool:
    """Return whether kernels on ``device`` run on streams that impl can choose."""
    return device.type not in ("cpu", "mps")


def _require_accelerator() -> str:
    kind = accelerator_type()
    if kind is None:
        raise RuntimeError("Cannot access accelerator device when none is available.")
    return kind
