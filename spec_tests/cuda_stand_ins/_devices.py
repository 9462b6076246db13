"""Checks of devices, dimensions and shapes for the stand-ins."""

from collections.abc import Iterable
from ctypes import c_int8

import torch
from torch import Tensor


def accelerator_type() -> str:
    """Return the type of the current accelerator.

    Raises:
        RuntimeError: If this machine has no accelerator, real or simulated.
    """
    current = torch.accelerator.current_accelerator()
    if current is None:
        raise RuntimeError("no accelerator: enable the simulator before calling the reference")
    return current.type


def is_on_accelerator(tensor: Tensor) -> bool:
    """Return whether ``tensor`` is on a device of the current accelerator."""
    return tensor.device.type == accelerator_type()


def accelerator_name() -> str:
    """Return the accelerator's type in capitals, as in error texts: ``CUDA``."""
    return accelerator_type().upper()


def device_at(ordinal: int) -> torch.device:
    """Return the accelerator's device with this ordinal.

    Raises:
        RuntimeError: If ``ordinal`` is negative.
    """
    if ordinal < 0:
        raise RuntimeError(f"Expected non-negative device index, but got {ordinal}")
    return device_at_byte(ordinal)


def device_at_byte(ordinal: int) -> torch.device:
    """Return the accelerator's device for the lowest 8 bits of ``ordinal``, a signed number.

    In C++, a device stores its ordinal in 8 bits. -1 is the current device. Any other negative
    number is no device, like 127.
    """
    byte = c_int8(ordinal).value
    if byte == -1:
        byte = torch.accelerator.current_device_index()
    return torch.device(accelerator_type(), byte if byte >= 0 else 127)


def wrap_dim(dim: int, tensor: Tensor) -> int:
    """Return ``dim`` as a non-negative number. A 0-dim tensor has the dims 0 and -1.

    Raises:
        IndexError: If ``tensor`` has no dimension ``dim``.
    """
    count = max(tensor.dim(), 1)
    if not -count <= dim < count:
        raise IndexError(
            "Dimension out of range "
            f"(expected to be in range of [{-count}, {count - 1}], but got {dim})"
        )
    return dim % count


def sizes_of(tensor: Tensor) -> list[int]:
    """Return the extents of ``tensor``.

    Raises:
        RuntimeError: If ``tensor`` is nested.
    """
    return list(torch.ops.aten.size.default(tensor) if tensor.is_nested else tensor.shape)


def format_sizes(sizes: Iterable[int]) -> str:
    """Return sizes as text, in the format of C++: ``[2, 3]``."""
    return str(list(sizes))
