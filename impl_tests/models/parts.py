"""What nested outputs hold: every tensor, by its place."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

__all__ = ["parts"]

#: Of containers in each other, where objects of other packages hold each other in a circle.
_DEEPEST = 8


def parts(output: Any) -> dict[str, Tensor]:
    """Name the tensors of ``output``, those in attributes of unknown objects, too."""
    return {place: tensor.detach().cpu().clone() for place, tensor in _walk(output, "", 0)}


def _walk(value: Any, place: str, depth: int) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield place, value
    elif depth < _DEEPEST:
        for step, member in _members(value):
            yield from _walk(member, f"{place}{step}", depth + 1)


def _members(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((f".{key}", member) for key, member in value.items())
    elif isinstance(value, tuple) and hasattr(value, "_asdict"):
        yield from _members(value._asdict())
    elif isinstance(value, list | tuple):
        yield from ((f"[{index}]", member) for index, member in enumerate(value))
    elif dataclasses.is_dataclass(value) or _is_foreign(value):
        yield from ((f".{name}", member) for name, member in vars(value).items())


def _is_foreign(value: Any) -> bool:
    """Tell whether it is an object that only its own package knows, such as a cache."""
    known = (str, int, float, type, torch.dtype, torch.device)
    return hasattr(value, "__dict__") and not isinstance(value, known)
