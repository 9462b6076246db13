"""Calls that torch.compile, torch.export or torch.jit.trace record as a graph.

A graph contains the work of one device. With several devices torch.compile breaks the graph, and
torch.jit.trace raises an error. With one device, or none, the recorded graph is the graph of the
wrapped module.
"""

from typing import Any

import torch
from torch import Tensor

from ._torch_private import (
    begin_profiler_span,
    compile_only_inlined,
    end_profiler_span,
    exclude_from_compilation,
    is_traced,
)

#: Types whose values contain no tensor and no marker such as ``Whole``.
CONSTANTS = (type(None), bool, int, float, complex, str, bytes)


@compile_only_inlined
def is_compiling_or_tracing() -> bool:
    """Return whether this call is recorded as a graph.

    torch.compile evaluates the result while it compiles, so graphs contain no condition.
    """
    return torch.compiler.is_compiling() or torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call] # in torch


def check_not_traced() -> None:
    """Raise RuntimeError if torch.jit.trace records this call."""
    if is_traced():
        raise RuntimeError(
            "torch.jit.trace cannot record work that is split over devices: trace the module "
            "itself, which is `wrapper.module` where DataParallel wraps it"
        )


def break_graph() -> None:
    """Break the graph if torch.compile records this call (an error with ``fullgraph=True``)."""
    if torch.compiler.is_compiling():
        # Return the call. After any other statement torch.compile would compile a second frame.
        return _compute_on_several_devices()
    return None


@exclude_from_compilation
def _compute_on_several_devices() -> None:
    """Do nothing. As the reason of the graph break, torch.compile prints this function's name."""


class ProfilerSpan:
    """A ``record_function`` block that may contain compiled code, but is not compiled."""

    __slots__ = ("_name", "_span")

    @exclude_from_compilation
    def __init__(self, name: str) -> None:
        self._name = name

    @exclude_from_compilation
    def __enter__(self) -> None:
        self._span = begin_profiler_span(self._name)

    @exclude_from_compilation
    def __exit__(self, *_: object) -> None:
        end_profiler_span(self._span)


def is_movable(value: Any, dim: int) -> bool:
    """Return whether :func:`move_tensors` can replace a scatter of ``value`` to one device.

    The scatter would raise an error for a tensor without the dimension ``dim``.
    """
    if isinstance(value, Tensor):
        return value.dim() == 0 or -value.dim() <= dim < value.dim()
    if type(value) is dict:
        value = list(value.values())
    if type(value) in (tuple, list):
        return all(is_movable(part, dim) for part in value)
    return isinstance(value, CONSTANTS)


def move_tensors(value: Any, device: torch.device) -> Any:
    """Return ``value`` with its tensors moved to ``device`` by recordable operators."""
    if isinstance(value, Tensor):
        return value if value.device == device else value.to(device)
    if type(value) is tuple:
        return tuple([move_tensors(part, device) for part in value])
    if type(value) is list:
        return [move_tensors(part, device) for part in value]
    if type(value) is dict:
        return {key: move_tensors(part, device) for key, part in value.items()}
    return value
