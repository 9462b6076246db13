"""Conversion of device arguments, and the current device.

Only this module distinguishes device types, and knows that -1 is a deprecated name of the CPU.
"The accelerator" is the device type that ``torch.accelerator`` reports at the time of the call. An
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
    """Return the type of ``accelerator`` if it is usable. The driver is queried once."""
    usable = torch.get_device_module(accelerator).is_available()
    return accelerator.type if usable else None


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
    """Return whether ``device`` is a CUDA device, which reports its memory and cores."""
    return device.type == "cuda"


def alignment_on(device: torch.device) -> int:
    """Return the alignment of new tensors on ``device`` in bytes.

    CUDA's allocator aligns to 512 bytes, PyTorch's CPU allocator to 64. For other accelerators 64
    bytes are assumed.
    """
    return 512 if is_cuda(device) else 64


def is_on_cpu(tensor: Tensor) -> bool:
    """Return whether ``tensor`` is on the CPU."""
    return tensor.device.type == "cpu"


def is_minus_one(device: DeviceLike | None) -> bool:
    """Return whether ``device`` is -1, which means the CPU, as a target only."""
    return device == -1


def is_of_type(device: torch.device, kind: str | None) -> bool:
    """Return whether ``device`` is of the type ``kind``; False if ``kind`` is None."""
    return device.type == kind


def check_device_type(device: torch.device, kind: str) -> None:
    """Check that ``device`` is of the accelerator's type ``kind``.

    Raises:
        AssertionError: ``device`` is of another type.
    """
    if device.type != kind:
        raise AssertionError(
            f"Expected current accelerator type {kind} to match device type {device.type}"
        )


def device_index(device: DeviceLike) -> int:
    """Return the ordinal of ``device``, which may be negative or larger than any ordinal.

    Raises:
        ValueError: ``device`` is the CPU, or has no index.
        RuntimeError: ``device`` is an invalid device string.
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
    """Return the accelerator's device ``ordinal``.

    Raises:
        RuntimeError: ``ordinal`` is negative, or there is no accelerator.
    """
    if ordinal < 0:
        raise RuntimeError(f"Expected non-negative device index, but got {ordinal}")
    return torch.device(_require_accelerator(), ordinal)


def as_device(device: DeviceLike) -> torch.device:
    """Return a device of the accelerator, with its index, or ``torch.device("cpu")``.

    Raises:
        ValueError: ``device`` has no index and is not the CPU.
        RuntimeError: ``device`` is an invalid device string, the ordinal is negative, or there is
            no accelerator.
    """
    return CPU if is_cpu(device) else device_at(device_index(device))


def as_device_or_current(device: DeviceLike | None) -> torch.device:
    """Return the same as :func:`as_device`, or the current device if ``device`` has no index.

    Raises:
        RuntimeError: As for :func:`as_device`.
    """
    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, int):
        return device_at(device)
    if is_cpu(device):
        return CPU
    index = device.index if isinstance(device, torch.device) else None
    return current_device() if index is None else device_at(index)


def as_target(device: DeviceLike | None, *, warns: bool = True) -> torch.device:
    """Return the same as :func:`as_device_or_current`, and the CPU for -1, its deprecated name.

    Args:
        device: The target device of a copy.
        warns: Whether -1 raises a FutureWarning at the caller of the calling function.

    Raises:
        RuntimeError: As for :func:`as_device`.
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
    """Return the accelerator's current device.

    Raises:
        RuntimeError: There is no accelerator.
    """
    return torch.device(_require_accelerator(), torch.accelerator.current_device_index())


def all_devices() -> list[torch.device]:
    """Return the accelerator's devices by ordinal; an empty list without an accelerator."""
    return [*map(device_at, range(torch.accelerator.device_count()))]


def use_device(device: torch.device) -> AbstractContextManager[None]:
    """Make ``device`` current inside a ``with`` block. The CPU changes nothing."""
    # The index of the CPU is None, for which PyTorch changes nothing.
    return torch.accelerator.device_index(device.index)


def has_streams(device: torch.device) -> bool:
    """Return whether ``device`` has several streams."""
    return device.type not in ("cpu", "mps")


def _require_accelerator() -> str:
    kind = accelerator_type()
    if kind is None:
        raise RuntimeError("Cannot access accelerator device when none is available.")
    return kind
