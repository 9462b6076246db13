"""Collect the tensors of nested outputs, keyed by their paths."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

__all__ = ["collect_tensors"]

#: The largest depth of the traversal. It is limited because objects may refer to each other.
_MAX_DEPTH = 8


def collect_tensors(output: Any) -> dict[str, Tensor]:
    """Return path -> tensor for all tensors of ``output``, also those in objects' attributes."""
    return {path: tensor.detach().cpu().clone() for path, tensor in _walk(output, "", 0)}


def _walk(value: Any, path: str, depth: int) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield path, value
    elif depth < _MAX_DEPTH:
        for step, member in _members_with_paths(value):
            yield from _walk(member, f"{path}{step}", depth + 1)


def _members_with_paths(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((f".{key}", member) for key, member in value.items())
    elif isinstance(value, tuple) and hasattr(value, "_asdict"):
        yield from _members_with_paths(value._asdict())
    elif isinstance(value, list | tuple):
        yield from ((f"[{index}]", member) for index, member in enumerate(value))
    elif dataclasses.is_dataclass(value) or _is_object(value):
        yield from ((f".{name}", member) for name, member in vars(value).items())


def _is_object(value: Any) -> bool:
    """Return whether ``value`` is an object of an unknown class, such as a cache."""
    known = (str, int, float, type, torch.dtype, torch.device)
    return hasattr(value, "__dict__") and not isinstance(value, known)
