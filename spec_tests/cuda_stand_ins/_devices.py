"""Checks of devices, dimensions and shapes for the primitives."""

import functools
from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

_Args = ParamSpec("_Args")
_Result = TypeVar("_Result")


def primitive(function: Callable[_Args, _Result]) -> Callable[_Args, _Result]:
    """Run ``function`` without ``__torch_function__``, as the real primitives run."""

    @functools.wraps(function)
    def run(*args: _Args.args, **kwargs: _Args.kwargs) -> _Result:
        with torch._C.DisableTorchFunction():
            return function(*args, **kwargs)

    return run


def accelerator() -> str:
    """Return the type of the current accelerator.

    Raises:
        RuntimeError: this machine has no accelerator, simulated or real.
    """
    found = torch.accelerator.current_accelerator()
    if found is None:
        raise RuntimeError("no accelerator: enable the simulator before calling the reference")
    return found.type


def is_on_accelerator(tensor: Tensor) -> bool:
    """Return whether ``tensor`` is on the accelerator."""
    return tensor.device.type == accelerator()


def accelerator_name() -> str:
    """Return the accelerator's type for messages: ``CUDA`` for ``cuda``."""
    return accelerator().upper()


def device(ordinal: int) -> torch.device:
    """Return the accelerator's device with this ordinal.

    Raises:
        RuntimeError: ``ordinal`` is negative.
    """
    if ordinal < 0:
        raise RuntimeError(f"Expected non-negative device index, but got {ordinal}")
    return torch.device(accelerator(), ordinal)


def wrap_dim(dim: int, tensor: Tensor) -> int:
    """Return ``dim`` as a non-negative number; a scalar has the dims 0 and -1.

    Raises:
        IndexError: ``tensor`` has no dimension ``dim``.
    """
    count = max(tensor.dim(), 1)
    if not -count <= dim < count:
        raise IndexError(
            "Dimension out of range "
            f"(expected to be in range of [{-count}, {count - 1}], but got {dim})"
        )
    return dim % count


def format_sizes(sizes: Iterable[int]) -> str:
    """Format sizes as C++ does: ``[2, 3]``."""
    return str(list(sizes))
