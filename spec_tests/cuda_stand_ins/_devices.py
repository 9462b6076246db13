"""Checks of devices, dimensions and shapes for the primitives."""

import functools
from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

_Args = ParamSpec("_Args")
_Result = TypeVar("_Result")


def primitive(function: Callable[_Args, _Result]) -> Callable[_Args, _Result]:
    """Run ``function`` below ``__torch_function__``, where the real primitives are."""

    @functools.wraps(function)
    def run(*args: _Args.args, **kwargs: _Args.kwargs) -> _Result:
        with torch._C.DisableTorchFunction():
            return function(*args, **kwargs)

    return run


def accelerator() -> str:
    """The device type that the primitives serve.

    Raises:
        RuntimeError: this machine has no accelerator, simulated or real.
    """
    found = torch.accelerator.current_accelerator()
    if found is None:
        raise RuntimeError("no accelerator: enable the simulator before calling the reference")
    return found.type


def is_on_accelerator(tensor: Tensor) -> bool:
    """Whether ``tensor`` is what messages call a CUDA tensor."""
    return tensor.device.type == accelerator()


def kind() -> str:
    """The accelerator's type as messages print it, ``CUDA`` for ``cuda``."""
    return accelerator().upper()


def device(ordinal: int) -> torch.device:
    """The accelerator's device ``ordinal``.

    Raises:
        RuntimeError: ``ordinal`` is negative.
    """
    if ordinal < 0:
        raise RuntimeError(f"Expected non-negative device index, but got {ordinal}")
    return torch.device(accelerator(), ordinal)


def wrap_dim(dim: int, tensor: Tensor) -> int:
    """``dim`` counted from the first dimension; 0 and -1 pass for a scalar.

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


def shape(sizes: Iterable[int]) -> str:
    """Sizes as C++ prints them: ``[2, 3]``."""
    return str(list(sizes))
