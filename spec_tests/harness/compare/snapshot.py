"""Snapshots: values as plain data, for the comparison of two runs.

A snapshot of a tensor records everything that a caller can see: values, dtype, shape, strides,
device, ``requires_grad``, class, and the input whose memory it shares.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from spec_tests.harness.traverse import leaves, members, tensors


@dataclass(frozen=True)
class TensorSnapshot:
    """The visible properties of a tensor."""

    values: Tensor
    facts: Mapping[str, object]


@dataclass(frozen=True)
class Structure:
    """A container: its class, its keys or positions, and the snapshots of its members."""

    kind: str
    members: Mapping[object, Any]


@dataclass(frozen=True)
class Leaf:
    """Any other value: its class, its ``repr``, and its path if it is an input."""

    kind: str
    text: str
    identity: str | None


def snapshot(value: object, inputs: Mapping[str, object], *, strides: bool = True) -> Any:
    """Return the snapshot of ``value``. It names inputs whose memory ``value`` shares by path."""
    return _snapshot(value, _Labels(inputs), strides)


class _Labels:
    """The paths of the inputs, by object and by memory."""

    def __init__(self, inputs: Mapping[str, object]) -> None:
        found = [pair for name, value in inputs.items() for pair in tensors(value, name)]
        self._objects = {id(tensor): path for path, tensor in reversed(found)}
        self._memory = {_memory(t): (path, t) for path, t in reversed(found) if _memory(t)}
        self._others = {
            id(leaf): path
            for name, value in inputs.items()
            for path, leaf in leaves(value, name)
            if not isinstance(leaf, (str, int, float, type(None), tuple))
        }

    def of_tensor(self, tensor: Tensor) -> str | None:
        if id(tensor) in self._objects:
            return f"is {self._objects[id(tensor)]}"
        shared = self._memory.get(_memory(tensor))
        if shared is None or tensor.numel() == 0:
            return None
        path, source = shared
        return f"memory of {path} from byte {_offset(tensor) - _offset(source)}"

    def of_object(self, value: object) -> str | None:
        return self._others.get(id(value))


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr() if tensor.layout is torch.strided else 0


def _offset(tensor: Tensor) -> int:
    return int(tensor.storage_offset()) * tensor.element_size()


def _snapshot(value: object, labels: _Labels, strides: bool) -> Any:
    if isinstance(value, Tensor):
        return _of_tensor(value, labels, strides)
    found = members(value)
    if found or isinstance(value, (list, tuple, dict)):
        snapshots = {key: _snapshot(member, labels, strides) for key, member in found.items()}
        return Structure(_name(type(value)), snapshots)
    identity = labels.of_object(value)
    return Leaf(_name(type(value)), "" if identity else repr(value), identity)


def _of_tensor(tensor: Tensor, labels: _Labels, strides: bool) -> TensorSnapshot:
    facts: dict[str, object] = {
        "class": _name(type(tensor)),
        "dtype": tensor.dtype,
        "shape": tuple(tensor.shape),
        "device": str(tensor.device),
        "layout": tensor.layout,
        "requires_grad": tensor.requires_grad,
        "aliasing": labels.of_tensor(tensor),
    }
    if strides and tensor.layout is torch.strided:
        facts["strides"] = _strides(tensor)
    plain = tensor.detach()
    if tensor.layout is not torch.strided:
        facts["coalesced"] = tensor.layout is torch.sparse_coo and tensor.is_coalesced()
        plain = plain.to_dense()
    return TensorSnapshot(plain.cpu().resolve_conj().resolve_neg().clone(), facts)


def _strides(tensor: Tensor) -> tuple[int | None, ...]:
    # The stride of a dimension with fewer than two elements is not used.
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    used = tensor.numel() > 0
    return tuple(stride if used and size > 1 else None for size, stride in pairs)


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
