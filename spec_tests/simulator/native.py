"""The extension, once it is loaded, and what Python asks of it."""

from typing import Protocol, TypeAlias, cast

import torch

from . import build

__all__ = ["RawAccess", "RawRace", "extension", "load"]

#: Operator, device, stream, thread, place, whether it writes.
RawAccess: TypeAlias = tuple[str, int, int, str, str, bool]
#: Two accesses, whether the second one frees, device and bytes of the memory, who made it.
RawRace: TypeAlias = tuple[RawAccess, RawAccess, bool, int, int, RawAccess | None]


class Extension(Protocol):
    """The functions of ``csrc/module.cpp``."""

    def start(self, device_count: int) -> None:
        """Set the number of devices, once."""

    def device_count(self) -> int:
        """Return the number of devices."""

    def current_device(self) -> int:
        """Return the ordinal that is current in this thread."""

    def in_bad_fork(self) -> bool:
        """Tell whether this is a forked child of a process that used the devices."""

    def open_races(self, late: int | None) -> None:
        """Begin to follow accesses, and with a seed to hold copies back; blocks nest."""

    def close_races(self) -> list[RawRace]:
        """End the innermost block and return what raced in it."""

    def set_fault(self, name: str, device: int) -> None:
        """Switch a fault on, or with an empty name off."""

    def default_generator(self, index: int) -> torch.Generator:
        """Return the generator of device ``index``."""


_loaded: list[Extension] = []


def load() -> Extension:
    """Load the extension into this process, which registers the device type."""
    if not _loaded:
        _loaded.append(cast(Extension, build.load()))
    return _loaded[0]


def extension() -> Extension:
    """Return the extension, which :func:`load` has loaded."""
    return _loaded[0]
