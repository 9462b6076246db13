"""The module ``torch.sim``: what ``torch.cuda`` is for CUDA.

Streams, events and memory statistics are those of ``torch.accelerator``; functions that take a
device accept an ordinal, a string, a ``torch.device``, or ``None`` for the current device.
"""

import dataclasses
from typing import TypeAlias

import torch
from torch import Tensor

from .native import extension

__all__ = [
    "Event",
    "Stream",
    "current_device",
    "current_stream",
    "default_generator",
    "device",
    "device_count",
    "empty_cache",
    "get_amp_supported_dtype",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "is_available",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "memory_allocated",
    "memory_stats",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "synchronize",
]

DeviceLike: TypeAlias = int | str | torch.device | None

Stream = torch.Stream
Event = torch.Event

_initialized = True  # torch.utils.checkpoint asks for it before it keeps random states


@dataclasses.dataclass(frozen=True)
class _DeviceProperties:
    name: str
    total_memory: int  # bytes
    multi_processor_count: int


def _index(device: DeviceLike) -> int:
    if isinstance(device, int):
        return current_device() if device < 0 else device
    if device is None:
        return current_device()
    wanted = torch.device(device)
    if wanted.type != "sim":
        raise ValueError(f"expected a sim device, but got {wanted}")
    return current_device() if wanted.index is None else wanted.index


def is_available() -> bool:
    """Tell whether there is a device."""
    return device_count() > 0


def is_initialized() -> bool:
    """Tell whether the devices can be used: where they exist, but not in every forked child."""
    return is_available() and not _is_in_bad_fork()


def _lazy_init() -> None:
    """Do nothing: there is nothing to initialise."""


def _is_in_bad_fork() -> bool:
    return extension().in_bad_fork()


def device_count() -> int:
    """Return the number of devices."""
    return extension().device_count()


def current_device() -> int:
    """Return the ordinal of the device that is current in this thread."""
    return extension().current_device()


def set_device(device: DeviceLike) -> None:
    """Make ``device`` current in this thread."""
    torch.accelerator.set_device_index(_index(device))


class device:  # noqa: N801 - torch.cuda.device is in lower case
    """Context in which ``device`` is current."""

    def __init__(self, device: DeviceLike) -> None:
        self.idx = _index(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = current_device()
        set_device(self.idx)

    def __exit__(self, *raised: object) -> None:
        set_device(self.prev_idx)


def get_device_name(device: DeviceLike = None) -> str:
    """Return the name of ``device``."""
    return get_device_properties(device).name


def get_device_properties(device: DeviceLike = None) -> _DeviceProperties:
    """Return what ``device`` is said to have: all devices are alike."""
    index = _index(device)
    _, total = torch.accelerator.get_memory_info(index)
    return _DeviceProperties(f"Simulated accelerator {index}", total, multi_processor_count=16)


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Return the types that autocast can cast to."""
    return [torch.float16, torch.bfloat16]


def current_stream(device: DeviceLike = None) -> torch.Stream:
    """Return the stream that is current on ``device`` in this thread."""
    return torch.accelerator.current_stream(_index(device))


def set_stream(stream: torch.Stream) -> None:
    """Make ``stream`` and its device current in this thread."""
    torch.accelerator.set_stream(stream)


def synchronize(device: DeviceLike = None) -> None:
    """Wait for all work on ``device``, all of which is done."""
    torch.accelerator.synchronize(_index(device))


def empty_cache() -> None:
    """Release cached memory, of which there is none."""
    torch.accelerator.empty_cache()


def memory_allocated(device: DeviceLike = None) -> int:
    """Return how many bytes of ``device`` are in use."""
    return torch.accelerator.memory_allocated(_index(device))


def max_memory_allocated(device: DeviceLike = None) -> int:
    """Return the most bytes of ``device`` in use since the last reset."""
    return torch.accelerator.max_memory_allocated(_index(device))


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """Let the peak of ``device`` start from what is in use now."""
    torch.accelerator.reset_peak_memory_stats(_index(device))


def memory_stats(device: DeviceLike = None) -> dict[str, int]:
    """Return every counter of ``device``."""
    return dict(torch.accelerator.memory_stats(_index(device)))


def default_generator(device: DeviceLike = None) -> torch.Generator:
    """Return the generator that random operators of ``device`` use unless given another."""
    return extension().default_generator(_index(device))


def manual_seed(seed: int) -> None:
    """Seed the generator of the current device."""
    default_generator().manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """Seed the generators of all devices alike: with the CPU's seed they draw its numbers."""
    for index in range(device_count()):
        default_generator(index).manual_seed(seed)


def seed() -> int:
    """Seed the generator of the current device at random; return the seed."""
    return default_generator().seed()


def seed_all() -> None:
    """Seed the generators of all devices with one random number."""
    manual_seed_all(seed())


def initial_seed() -> int:
    """Return the seed of the current device's generator."""
    return default_generator().initial_seed()


def get_rng_state(device: DeviceLike = "sim") -> Tensor:
    """Return the state of the generator of ``device``: a CPU tensor of bytes, a copy."""
    return default_generator(device).get_state()


def get_rng_state_all() -> list[Tensor]:
    """Return the states of the generators of all devices."""
    return [get_rng_state(index) for index in range(device_count())]


def set_rng_state(new_state: Tensor, device: DeviceLike = "sim") -> None:
    """Give the generator of ``device`` a state that :func:`get_rng_state` returned."""
    default_generator(device).set_state(new_state)


def set_rng_state_all(new_states: list[Tensor]) -> None:
    """Give the generators of all devices the states of :func:`get_rng_state_all`."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)
