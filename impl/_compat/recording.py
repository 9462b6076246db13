"""Calls that torch.compile, torch.export or torch.jit.trace record as a graph.

A graph holds the work of one device. What several devices compute is in none: torch.compile leaves
it out, and torch.jit.trace is refused. With one device, or none, the graph is the module's.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.profiler import record_function

from .torch_private import compile_only_inlined, exclude_from_compilation

__all__ = [
    "ProfilerSpan",
    "break_graph",
    "check_not_traced",
    "is_movable",
    "is_recorded",
    "move_tensors",
]

#: What is passed on as it is. Anything else may be, or hold, a container or a marker.
_CONSTANTS = (type(None), bool, int, float, complex, str, bytes)


@compile_only_inlined
def is_recorded() -> bool:
    """Return whether this call is recorded; torch.compile takes the answer for a constant."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call] # in torch


def check_not_traced() -> None:
    """Raise RuntimeError where torch.jit.trace records this call."""
    if torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call] # in torch
        raise RuntimeError(
            "torch.jit.trace cannot record work that is split over devices: trace the module "
            "itself, which is `wrapper.module` where DataParallel wraps it"
        )


def break_graph() -> None:
    """Break the graph that torch.compile records, if any: with ``fullgraph=True`` it raises."""
    if torch.compiler.is_compiling():
        return _compute_on_several_devices()
    return None


@exclude_from_compilation
def _compute_on_several_devices() -> None:
    """Do nothing: torch.compile names it where it tells why the graph ends."""


class ProfilerSpan:
    """``record_function`` around what may be compiled, with code that is not.

    Args:
        name: What a profiler shows.
    """

    @exclude_from_compilation
    def __init__(self, name: str) -> None:
        self._span = record_function(name)

    @exclude_from_compilation
    def __enter__(self) -> None:
        self._span.__enter__()  # type: ignore[no-untyped-call] # in torch

    @exclude_from_compilation
    def __exit__(self, *error: Any) -> None:
        self._span.__exit__(*error)


def is_movable(value: Any, dim: int) -> bool:
    """Return whether :func:`move_tensors` does with ``value`` what scatter does for one device.

    Args:
        value: Anything.
        dim: The dimension that scatter would split.
    """
    if isinstance(value, Tensor):
        return value.dim() == 0 or -value.dim() <= dim < value.dim()
    if type(value) is dict:
        value = list(value.values())
    if type(value) in (tuple, list):
        return all(is_movable(part, dim) for part in value)
    return isinstance(value, _CONSTANTS)


def move_tensors(value: Any, device: torch.device) -> Any:
    """Return nested ``value`` with its tensors on ``device``, by operators that are recorded."""
    if isinstance(value, Tensor):
        return value if value.device == device else value.to(device)
    if type(value) is tuple:
        return tuple([move_tensors(part, device) for part in value])
    if type(value) is list:
        return [move_tensors(part, device) for part in value]
    if type(value) is dict:
        return {key: move_tensors(part, device) for key, part in value.items()}
    return value
