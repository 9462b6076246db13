"""Checks of devices, dimensions and shapes for the stand-ins."""

import functools
from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

_Args = ParamSpec("_Args")
_Result = TypeVar("_Result")


def primitive(function: Callable[_Args, _Result]) -> Callable[_Args, _Result]:
    """Make a stand-in ignore ``__torch_function__``, as the real primitives do."""

    @functools.wraps(function)
    def run(*args: _Args.args, **kwargs: _Args.kwargs) -> _Result:
        with torch._C.DisableTorchFunction():
            return function(*args, **kwargs)

    return run


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
    return torch.device(accelerator_type(), ordinal)


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


def format_sizes(sizes: Iterable[int]) -> str:
    """Return sizes as text, in the format of C++: ``[2, 3]``."""
    return str(list(sizes))
