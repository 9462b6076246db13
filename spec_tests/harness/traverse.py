"""Traversal of nested containers and modules: every member and tensor with its path."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from torch import Tensor, nn

__all__ = ["leaves", "members", "tensors"]


def leaves(value: object, path: str) -> Iterator[tuple[str, object]]:
    """Yield every member of nested containers with its path, outermost first."""
    yield path, value
    if isinstance(value, nn.Module):
        return
    for key, member in members(value).items():
        yield from leaves(member, f"{path}[{key!r}]")


def tensors(value: object, path: str) -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor in nested containers and modules, with its path."""
    for where, leaf in leaves(value, path):
        if isinstance(leaf, Tensor):
            yield where, leaf
        elif isinstance(leaf, nn.Module):
            state = [*leaf.named_parameters(), *leaf.named_buffers()]
            yield from ((f"{where}.{name}", tensor) for name, tensor in state)


def members(value: object) -> Mapping[object, object]:
    """Return the members of a container by key, position or field; empty for other values."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return dict(zip(value._fields, value, strict=True))
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes, range)):
        return dict(enumerate(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return {}
