"""Device arguments, types of devices, and the current device.

No other module compares device types by itself, or converts -1, a deprecated name of the CPU. "The
accelerator" is the device type that ``torch.accelerator`` reports at the time of the call. An
integer is an ordinal of the accelerator. A device of another type counts as the accelerator's
device with that index: without CUDA, ``"cuda:1"`` is its device 1.

A ``DeviceLike`` is an ordinal, a string or a ``torch.device``. Three functions convert it:

- :func:`as_device_or_current`: a DeviceLike or None -> a ``torch.device``
- :func:`as_target`: the same, or -1 -> a ``torch.device``
- :func:`device_index`: a DeviceLike or None -> an ordinal
"""

import warnings
from collections.abc import Callable, Iterable
from functools import cache
from numbers import Integral
from typing import Any, TypeGuard, TypeVar

import torch
from torch import Tensor

from ._arguments import argument
from ._settings import call_with_setting

DeviceLike = int | str | torch.device
_R = TypeVar("_R")

CPU = torch.device("cpu")

#: The largest index of a device. PyTorch keeps 8 bits of an index: it takes 256 for 0.
_MAX_INDEX = 127


def accelerator_type() -> str | None:
    """Return the type of the accelerator, such as ``"cuda"``, or None if none is available."""
    accelerator = torch.accelerator.current_accelerator()
    return accelerator.type if accelerator is not None and _is_usable(accelerator.type) else None


@cache
def _is_usable(device_type: str) -> bool:
    """Return whether ``device_type`` is the type of the accelerator, and one is available.

    The result is cached, because queries of the driver are slow.
    """
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is None or accelerator.type != device_type:
        return False
    module = torch.get_device_module(device_type)
    # A back end may lack this function. `torch.accelerator` itself only needs `device_count`.
    is_available = getattr(module, "is_available", None)
    return device_count() > 0 if is_available is None else bool(is_available())


def device_count() -> int:
    """Return the number of devices of the accelerator; 0 if there is none.

    Raise RuntimeError if the back end does not offer this number.
    """
    try:
        return torch.accelerator.device_count()
    except AttributeError as error:  # torch.accelerator calls the back end's device module.
        raise RuntimeError(f"the back end cannot count its devices: {error}") from error


def devices_with_streams(devices: Iterable[torch.device]) -> list[torch.device]:
    """Return those of ``devices`` that have streams, each once.

    Raise RuntimeError if one of them does not exist.
    """
    distinct = [*filter(has_streams, dict.fromkeys(devices))]
    count = device_count() if distinct else 0
    for device in distinct:
        check_exists(device, count)
    return distinct


def check_exists(device: torch.device, count: int | None = None) -> None:
    """Raise RuntimeError if ``device`` is not one of the ``count`` devices of its type.

    By default the devices are counted. A back end may end the process if it is asked for the
    stream of a missing device.
    """
    count = device_count() if count is None else count
    if device.index >= count:
        raise RuntimeError(
            f"There is no device {device}: the number of {device.type} devices is {count}"
        )


def _parse(text: str) -> torch.device:
    """Return the device with a name. A note adds the name to the RuntimeError of a wrong one."""
    with argument(f"device {text!r}"):
        return torch.device(text)


def accelerator_in_use() -> str | None:
    """Return the type of the accelerator if this process has initialized it, else None.

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
        device = _parse(device)
    return type(device) is torch.device and device.type == "cpu"


def is_cuda(device: torch.device) -> bool:
    """Return whether ``device`` is a CUDA device. impl compares only these by memory and cores."""
    return device.type == "cuda"


def alignment_on(device: torch.device) -> int:
    """Return the alignment of new tensors on ``device`` in bytes.

    CUDA's allocator aligns to 512 bytes, PyTorch's CPU allocator to 64. For other accelerators 64
    bytes are assumed.
    """
    return 512 if is_cuda(device) else 64


def is_on_cpu(tensor: Tensor) -> bool:
    return tensor.device.type == "cpu"


def is_on_accelerator(tensor: Tensor) -> bool:
    """Return whether ``tensor`` is on the accelerator."""
    return _is_usable(tensor.device.type)


def is_minus_one(device: DeviceLike | None) -> bool:
    """Return whether ``device`` is -1, the deprecated name of the CPU as a target."""
    return is_ordinal(device) and device == -1


def is_of_type(device: torch.device, device_type: str | None) -> bool:
    """Return whether ``device`` is of the type ``device_type``; False for None."""
    return device.type == device_type


def check_device_type(device: torch.device, accelerator: str) -> None:
    """Raise AssertionError if ``device`` is not of the type ``accelerator``."""
    if device.type != accelerator:
        raise AssertionError(
            f"Expected current accelerator type {accelerator} to match device type {device.type}"
        )


def device_index(
    device: DeviceLike | None, optional: bool = False, allow_cpu: bool = False
) -> int:
    """Return the ordinal of ``device``. No check is made that the ordinal exists.

    With ``optional`` None, or a device without index, is the current device. With ``allow_cpu``
    the ordinal of the CPU is -1. Without these options, raise ValueError for these devices. Raise
    RuntimeError for an invalid string.
    """
    if is_ordinal(device) and not optional:
        return int(device)
    if isinstance(device, str):
        device = _parse(device)
    if is_cpu(device):
        if allow_cpu:
            return -1
        raise ValueError(f"Expected a non cpu device, but got: {device}")
    if optional:
        return as_device_or_current(device).index
    index = device.index if isinstance(device, torch.device) else None
    if index is None:
        raise ValueError(
            f"Expected a torch.device with a specified index or an integer, but got:{device}"
        )
    return index


def is_ordinal(device: object) -> TypeGuard[int]:
    """Return whether ``device`` is an integer of Python or NumPy, and not True or False."""
    kind = type(device)
    return kind is int or (issubclass(kind, Integral) and not issubclass(kind, bool))


def device_at(ordinal: int) -> torch.device:
    """Return the device of the accelerator with an ordinal.

    Raise RuntimeError if ``ordinal`` is negative or above 127, or there is no accelerator.
    """
    if ordinal < 0:
        raise RuntimeError(f"Expected non-negative device index, but got {ordinal}")
    if ordinal > _MAX_INDEX:
        raise RuntimeError(f"There is no device with the index {ordinal}")
    return torch.device(_require_accelerator(), ordinal)


def as_device_or_current(device: DeviceLike | None) -> torch.device:
    """Return ``device`` as a ``torch.device``: the CPU, or a device of the accelerator.

    None, or a device without index, is the current device. Raise the errors of :func:`device_at`,
    RuntimeError for an invalid string, and TypeError if ``device`` is an object that names no
    device.
    """
    if (
        type(device) is torch.device
        and _is_usable(device.type)
        and device.index is not None
        and device.index >= 0
    ):
        return device  # This is the usual case, and the checks below take longer.
    if isinstance(device, str):
        device = _parse(device)
    if is_ordinal(device):
        return device_at(int(device))
    if is_cpu(device):
        return CPU
    if device is not None and not isinstance(device, torch.device):
        name = type(device).__name__
        raise TypeError(f"a device must be an int, a str, a torch.device or None, not {name}")
    index = None if device is None else device.index
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
    """Return the current device. Raise RuntimeError if there is no accelerator."""
    return torch.device(_require_accelerator(), torch.accelerator.current_device_index())


def call_on_device(
    device: torch.device, function: Callable[..., _R], *args: Any, **kwargs: Any
) -> _R:
    """Call ``function(*args, **kwargs)`` while ``device`` is current.

    For the CPU the current device does not change. The earlier device is restored, even after an
    interrupt.
    """
    if is_cpu(device):
        return function(*args, **kwargs)
    before = torch.accelerator.current_device_index()
    set_index = torch.accelerator.set_device_index
    return call_with_setting(set_index, device.index, before, function, *args, **kwargs)


def has_streams(device: torch.device) -> bool:
    """Return whether kernels on ``device`` run on streams that impl can choose."""
    return device.type != "mps" and _is_usable(device.type)


def has_indices(device_type: str) -> bool:
    """Return whether devices of this type have indices: all but Apple's do."""
    return device_type != "mps"


def _require_accelerator() -> str:
    device_type = accelerator_type()
    if device_type is None:
        raise RuntimeError("Cannot access accelerator device when none is available.")
    return device_type
