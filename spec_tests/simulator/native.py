"""The loaded C++ extension and the types of its functions."""

from typing import Protocol, TypeAlias, cast

import torch

from . import build

#: Operator, device, stream, thread, source location, and whether the access writes.
RawAccess: TypeAlias = tuple[str, int, int, str, str, bool]
#: First access, second access, whether the second frees the memory, device and size in bytes of
#: the memory, and the operation that allocated the memory.
RawRace: TypeAlias = tuple[RawAccess, RawAccess, bool, int, int, RawAccess | None]


class Extension(Protocol):
    """The functions of ``csrc/module.cpp``."""

    def start(self, device_count: int) -> None:
        """Create the devices. A process may call it only once."""

    def device_count(self) -> int:
        """Return the number of devices."""

    def current_device(self) -> int:
        """Return the ordinal of the device that is current in this thread."""

    def in_bad_fork(self) -> bool:
        """Return whether this process was forked from a process that had used the devices."""

    def open_races(self, late_copies: int | None) -> None:
        """Begin a block that records accesses and, if given a seed, defers copies; blocks nest."""

    def close_races(self) -> list[RawRace]:
        """End the innermost block and return its races."""

    def set_fault(self, name: str, device: int, allocations: int = 0) -> None:
        """Enable the fault ``name``, a name of `FAULTS`; an empty name disables it.

        With "no-memory", ``device`` refuses memory after this number of allocations.
        """

    def set_missing_features(self, names: list[str]) -> None:
        """Switch the named features off, and all others on."""

    def default_generator(self, index: int) -> torch.Generator:
        """Return the generator of device ``index``."""


_loaded: list[Extension] = []


def load() -> Extension:
    """Load the extension, which registers the device type, and return it."""
    if not _loaded:
        _loaded.append(cast(Extension, build.load()))
    return _loaded[0]


def extension() -> Extension:
    """Return the loaded extension. Call :func:`load` first."""
    return _loaded[0]
