"""Traversal of nested containers and modules. A path describes a member: ``x[0]['a']``."""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence

from torch import Tensor, nn

#: The number of members that are read of a sequence: one may be endless.
_MAX_MEMBERS = 10_000


def walk(value: object, path: str) -> Iterator[tuple[str, object]]:
    """Yield ``value`` and all nested members with their paths, containers before their members."""
    yield path, value
    if isinstance(value, nn.Module):
        return
    for key, item in members(value).items():
        yield from walk(item, f"{path}[{key!r}]")


def tensors(value: object, path: str) -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor in nested containers and modules, with its path."""
    for member_path, member in walk(value, path):
        if isinstance(member, Tensor):
            yield member_path, member
        elif isinstance(member, nn.Module):
            state = [*member.named_parameters(), *member.named_buffers()]
            yield from ((f"{member_path}.{name}", tensor) for name, tensor in state)


def members(value: object) -> Mapping[object, object]:
    """Return a container's members by key, index or field name; empty for other values."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return dict(zip(value._fields, value, strict=True))
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes, range)):
        return dict(enumerate(itertools.islice(value, _MAX_MEMBERS)))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: getattr(value, name) for name in names if hasattr(value, name)}
    return {}


def storage_id(tensor: Tensor) -> int:
    """Return the identity of the tensor's storage; 0 if it has none.

    Sparse tensors and the tensors of some back ends have no storage. The memory of some devices
    has no address.
    """
    try:
        return int(tensor.untyped_storage()._cdata)
    except NotImplementedError:
        return 0
