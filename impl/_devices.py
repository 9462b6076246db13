"""Device arguments, types of devices, and the current device.

No other module compares device types by itself, or converts -1, a deprecated name of the CPU. "The
accelerator" is the device type that ``torch.accelerator`` reports at the time of the call. An
integer is an ordinal of the accelerator. A device of an unavailable type counts as the
accelerator's device with that index: without CUDA, ``"cuda:1"`` is its device 1. If a second
accelerator is available, such as CUDA beside a vendor's back end, its devices keep their type.

A ``DeviceLike`` is an ordinal, a string or a ``torch.device``. Five functions convert it:

- :func:`as_device_or_current`: a DeviceLike or None -> a ``torch.device``; :func:`as_devices`
  for several
- :func:`as_target`: the same, or -1 -> a ``torch.device``
- :func:`device_index`: a DeviceLike or None -> an ordinal
- :func:`device_at`: an ordinal -> a ``torch.device`` of an accelerator
- :func:`type_to_use`: a DeviceLike or None -> the type of an accelerator
"""

import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from numbers import Integral
from types import SimpleNamespace
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
    """Return whether a type is that of an available accelerator. Queries of a driver are slow."""
    if device_type == "cpu":
        return False
    try:
        module = torch.get_device_module(device_type)
    except RuntimeError:  # PyTorch has no device module for types such as "meta".
        return False
    # A back end may lack this function. `torch.accelerator` itself only needs `device_count`.
    is_available = getattr(module, "is_available", None)
    return device_count(device_type) > 0 if is_available is None else bool(is_available())


def device_count(device_type: str | None = None) -> int:
    """Return the number of devices of a type, by default of the accelerator; 0 without one."""
    try:
        count: int = runtime_of_type(device_type).device_count()
    except AttributeError as error:  # torch.accelerator calls the back end's device module.
        raise RuntimeError(f"the back end cannot count its devices: {error}") from error
    return count


def runtime_of(device: torch.device) -> Any:
    """Return an object with the functions of ``torch.accelerator`` for the type of ``device``."""
    return runtime_of_type(device.type)


def runtime_of_type(device_type: str | None) -> Any:
    """Return the functions of ``torch.accelerator`` for a type, by default the accelerator's."""
    accelerator = torch.accelerator.current_accelerator()
    if device_type is None or accelerator is None or accelerator.type == device_type:
        return torch.accelerator
    return _second_runtime(device_type)


def runtimes_with_streams(devices: Iterable[torch.device]) -> dict[torch.device, Any]:
    """Return :func:`runtime_of` for the devices that have streams. Check that these exist."""
    runtimes: dict[str, Any] = {}
    counts: dict[str, int] = {}
    by_device: dict[torch.device, Any] = {}
    for device in devices:
        device_type = device.type
        if device_type not in runtimes:
            runtimes[device_type] = runtime_of_type(device_type) if has_streams(device) else None
            counts[device_type] = 0 if runtimes[device_type] is None else device_count(device_type)
        if runtimes[device_type] is not None:
            check_exists(device, counts[device_type])
            by_device[device] = runtimes[device_type]
    return by_device


def check_exists(device: torch.device, count: int | None = None) -> None:
    """Raise RuntimeError if ``device`` is not one of the ``count`` devices of its type.

    A back end may end the process if it is asked for the stream of a missing device.
    """
    count = device_count(device.type) if count is None else count
    if device.index >= count:
        raise RuntimeError(
            f"There is no device {device}: the number of {device.type} devices is {count}"
        )


@cache
def _second_runtime(device_type: str) -> SimpleNamespace:
    """Return the functions of ``torch.accelerator`` for a type that is not the accelerator's."""
    module = torch.get_device_module(device_type)
    return SimpleNamespace(
        current_device_index=module.current_device,
        current_stream=module.current_stream,
        device_count=module.device_count,
        set_device_index=module.set_device,
        set_stream=module.set_stream,
    )


def _parse(text: str) -> torch.device:
    """Return the device with a name. A note adds the name to the RuntimeError of a wrong one."""
    with argument(f"device {text!r}"):
        return torch.device(text)


def type_to_use(device: DeviceLike | None) -> str | None:
    """Return the type of ``device`` if it is a usable accelerator, else the accelerator's."""
    if isinstance(device, str):
        device = _parse(device)
    if isinstance(device, torch.device) and _is_usable(device.type):
        return device.type
    return accelerator_type()


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
    if type(device) is torch.device:
        return device.type == "cpu"
    return isinstance(device, str) and is_cpu(_parse(device))


def is_cuda(device: torch.device) -> bool:
    """Return whether ``device`` is a CUDA device. impl compares only these by memory and cores."""
    return device.type == "cuda"


def alignment_on(device: torch.device) -> int:
    """Return the alignment of new tensors in bytes: CUDA's; else, or assumed, that of the CPU."""
    return 512 if is_cuda(device) else 64


def is_on_cpu(tensor: Tensor) -> bool:
    return tensor.device.type == "cpu"


def is_on_accelerator(tensor: Tensor) -> bool:
    """Return whether ``tensor`` is on an accelerator that can be used."""
    return _is_usable(tensor.device.type)


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


def device_at(ordinal: int, device_type: str | None = None) -> torch.device:
    """Return the device with an ordinal. Raise RuntimeError if no device can have it."""
    if ordinal < 0:
        raise RuntimeError(f"Expected non-negative device index, but got {ordinal}")
    if ordinal > _MAX_INDEX:
        raise RuntimeError(f"There is no device with the index {ordinal}")
    return torch.device(device_type or _require_accelerator(), ordinal)


def as_device_or_current(device: DeviceLike | None) -> torch.device:
    """Return ``device`` as a ``torch.device``: the CPU, or a device of an accelerator.

    None, or a device without index, is the current device. Raise the errors of :func:`device_at`,
    RuntimeError for an invalid string, and TypeError if ``device`` is an object that names no
    device.
    """
    # These are the usual cases, and the checks below take longer.
    if type(device) is int:
        return _devices_at(torch.accelerator.current_accelerator(), device)[0]
    if type(device) is torch.device:
        if device.type == "cpu":
            return CPU
        if _is_usable(device.type) and device.index is not None and device.index >= 0:
            return device
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
    device_type = type_to_use(device)
    return current_device(device_type) if index is None else device_at(index, device_type)


def as_devices(devices: Sequence[DeviceLike | None]) -> list[torch.device]:
    """Return :func:`as_device_or_current` of each of ``devices``, in less time for ordinals."""
    if {*map(type, devices)} == {int}:
        return [*_devices_at(torch.accelerator.current_accelerator(), *devices)]
    return [*map(as_device_or_current, devices)]


@lru_cache
def _devices_at(accelerator: torch.device | None, *ordinals: int) -> list[torch.device]:
    """Return the devices with ``ordinals``. If the accelerator changes, they are found again."""
    return [*map(device_at, ordinals)]


def as_target(device: DeviceLike | None, *, warns: bool = True) -> torch.device:
    """Convert ``device`` as :func:`as_device_or_current` does, and -1, with a warning, to CPU."""
    if type(device) is torch.device or not (is_ordinal(device) and device == -1):
        return as_device_or_current(device)
    if warns:
        warnings.warn(
            "Using -1 to represent CPU tensor is deprecated. Please use a device object or string "
            'instead, e.g., "cpu".',
            FutureWarning,
            stacklevel=3,
        )
    return CPU


def current_device(device_type: str | None = None) -> torch.device:
    """Return the current device of a type, by default of the accelerator."""
    device_type = device_type or _require_accelerator()
    return torch.device(device_type, runtime_of_type(device_type).current_device_index())


def call_on_device(
    device: torch.device, function: Callable[..., _R], *args: Any, **kwargs: Any
) -> _R:
    """Call ``function(*args, **kwargs)`` while ``device`` is current, unless it is the CPU."""
    if is_cpu(device):
        return function(*args, **kwargs)
    accelerator = runtime_of(device)
    before = accelerator.current_device_index()
    set_index = accelerator.set_device_index
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
