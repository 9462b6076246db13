"""The module ``torch.sim``, the counterpart of ``torch.cuda``.

Streams, events and memory statistics are those of ``torch.accelerator``. Functions that take a
device accept an ordinal, a string, a ``torch.device``, or ``None`` for the current device.
"""

import dataclasses
from typing import TypeAlias

import torch
from torch import Tensor

from .native import extension

DeviceLike: TypeAlias = int | str | torch.device | None

Stream = torch.Stream
Event = torch.Event

_initialized = True  # torch.utils.checkpoint reads this attribute before it saves random states


@dataclasses.dataclass(frozen=True)
class _DeviceProperties:
    name: str
    total_memory: int  # bytes
    multi_processor_count: int


def _ordinal(device: DeviceLike) -> int:
    if isinstance(device, int):
        return current_device() if device < 0 else device
    if device is None:
        return current_device()
    device = torch.device(device)
    if device.type != "sim":
        raise ValueError(f"expected a sim device, but got {device}")
    return current_device() if device.index is None else device.index


def is_available() -> bool:
    """Return whether there is at least one device."""
    return device_count() > 0


def is_initialized() -> bool:
    """Return whether this process can use devices. A fork of a process that used them cannot."""
    return is_available() and not _is_in_bad_fork()


def _lazy_init() -> None:
    """Do nothing: PyTorch requires the function, but sim has no lazy initialisation."""


def _is_in_bad_fork() -> bool:
    return extension().in_bad_fork()


def device_count() -> int:
    """Return the number of devices."""
    return extension().device_count()


def current_device() -> int:
    """Return the ordinal of the device that is current in this thread."""
    return extension().current_device()


def set_device(device: DeviceLike) -> None:
    """Select ``device`` as the current device of this thread."""
    torch.accelerator.set_device_index(_ordinal(device))


class device:  # noqa: N801 - torch.cuda.device is in lower case
    """Context manager that selects ``device`` as the current device."""

    def __init__(self, device: DeviceLike) -> None:
        self.idx = _ordinal(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = current_device()
        set_device(self.idx)

    def __exit__(self, *exception: object) -> None:
        set_device(self.prev_idx)


def get_device_name(device: DeviceLike = None) -> str:
    """Return the name of ``device``."""
    return get_device_properties(device).name


def get_device_properties(device: DeviceLike = None) -> _DeviceProperties:
    """Return name, memory and processors of ``device``. Devices differ only in their names."""
    index = _ordinal(device)
    _, total = torch.accelerator.get_memory_info(index)
    return _DeviceProperties(f"Simulated accelerator {index}", total, multi_processor_count=16)


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Return the dtypes that autocast can cast to."""
    return [torch.float16, torch.bfloat16]


def current_stream(device: DeviceLike = None) -> torch.Stream:
    """Return the stream that is current on ``device`` in this thread."""
    return torch.accelerator.current_stream(_ordinal(device))


def set_stream(stream: torch.Stream) -> None:
    """Select ``stream`` as the current stream, and its device as the current device."""
    torch.accelerator.set_stream(stream)


def synchronize(device: DeviceLike = None) -> None:
    """Wait for all work on ``device``. The race detector counts it as a wait of the host."""
    torch.accelerator.synchronize(_ordinal(device))


def empty_cache() -> None:
    """Do nothing: the allocator caches no memory."""
    torch.accelerator.empty_cache()


def memory_allocated(device: DeviceLike = None) -> int:
    """Return the number of bytes of ``device`` that are allocated."""
    return torch.accelerator.memory_allocated(_ordinal(device))


def max_memory_allocated(device: DeviceLike = None) -> int:
    """Return the peak number of bytes of ``device`` allocated since the last reset."""
    return torch.accelerator.max_memory_allocated(_ordinal(device))


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """Reset the peak of ``device`` to the number of bytes that are allocated now."""
    torch.accelerator.reset_peak_memory_stats(_ordinal(device))


def default_generator(device: DeviceLike = None) -> torch.Generator:
    """Return the generator that random operators of ``device`` use by default."""
    return extension().default_generator(_ordinal(device))


def manual_seed(seed: int) -> None:
    """Seed the generator of the current device."""
    default_generator().manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """Seed the generators of all devices; all devices then draw the same numbers."""
    for index in range(device_count()):
        default_generator(index).manual_seed(seed)


def get_rng_state(device: DeviceLike = "sim") -> Tensor:
    """Return a copy of the generator state of ``device``, as a CPU tensor of bytes."""
    return default_generator(device).get_state()


def set_rng_state(new_state: Tensor, device: DeviceLike = "sim") -> None:
    """Set the generator state of ``device`` to a state that :func:`get_rng_state` returned."""
    default_generator(device).set_state(new_state)
