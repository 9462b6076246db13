"""The extension, once it is loaded, and what Python asks of it."""

from typing import Protocol, cast

import torch

from . import build

__all__ = ["extension", "load"]


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
