"""Snapshots: values as plain data, so that the values of two runs can be compared.

A snapshot of a tensor records everything that a caller can see: values, dtype, shape, strides,
device, ``requires_grad``, class, and the input whose memory it shares.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from spec_tests.checks.nested_values import members, storage_id, tensors, walk


@dataclass(frozen=True)
class TensorSnapshot:
    """The visible properties of a tensor."""

    values: Tensor
    facts: Mapping[str, object]


@dataclass(frozen=True)
class Structure:
    """A container: its class, its keys or positions, and the snapshots of its members."""

    class_name: str
    members: Mapping[object, Any]


class Named(dict[str, Any]):
    """A dictionary whose keys name the facts about its values, such as ``buffers: class``."""


@dataclass(frozen=True)
class Leaf:
    """A value that is neither tensor nor container.

    Args:
        class_name: The class.
        text: The ``repr``; empty if the value is an input of the call.
        identity: The path of the value in the inputs; None if it is no input.
    """

    class_name: str
    text: str
    identity: str | None


def snapshot(value: object, inputs: Mapping[str, object], *, strides: bool = True) -> Any:
    """Return the snapshot of ``value``.

    Args:
        value: A tensor, a nested container, or any other value.
        inputs: The arguments of the call. The snapshot of a tensor that shares the memory of an
            argument contains the path of the argument.
        strides: Whether to record the strides of tensors.
    """
    return _snapshot(value, _InputPaths(inputs), strides)


class _InputPaths:
    """Finds the path of an input, given the same object or a tensor with the same memory."""

    def __init__(self, inputs: Mapping[str, object]) -> None:
        found = [pair for name, value in inputs.items() for pair in tensors(value, name)]
        self._objects = {id(tensor): path for path, tensor in reversed(found)}
        self._storages = {
            storage: (path, tensor)
            for path, tensor in reversed(found)
            if (storage := storage_id(tensor))
        }
        self._others = {
            id(member): path
            for name, value in inputs.items()
            for path, member in walk(value, name)
            if not isinstance(member, (str, int, float, type(None), tuple))
        }

    def aliasing_of(self, tensor: Tensor) -> str | None:
        """Return a text that names the input whose memory ``tensor`` shares, or None."""
        if id(tensor) in self._objects:
            return f"is {self._objects[id(tensor)]}"
        shared = self._storages.get(storage_id(tensor))
        if shared is None or tensor.numel() == 0:
            return None
        path, source = shared
        return f"memory of {path} from byte {_byte_offset(tensor) - _byte_offset(source)}"

    def path_of(self, value: object) -> str | None:
        return self._others.get(id(value))


def _byte_offset(tensor: Tensor) -> int:
    return int(tensor.storage_offset()) * tensor.element_size()


def _snapshot(value: object, input_paths: _InputPaths, strides: bool) -> Any:
    if isinstance(value, Tensor):
        return _tensor_snapshot(value, input_paths, strides)
    if isinstance(value, Named):
        return {key: _snapshot(member, input_paths, strides) for key, member in value.items()}
    found = members(value)
    if found or isinstance(value, (list, tuple, dict)):
        snapshots = {key: _snapshot(member, input_paths, strides) for key, member in found.items()}
        return Structure(_class_name(type(value)), snapshots)
    identity = input_paths.path_of(value)
    return Leaf(_class_name(type(value)), "" if identity else repr(value), identity)


def _tensor_snapshot(tensor: Tensor, input_paths: _InputPaths, strides: bool) -> TensorSnapshot:
    facts: dict[str, object] = {
        "class": _class_name(type(tensor)),
        "dtype": tensor.dtype,
        "shape": tuple(tensor.shape),
        "device": str(tensor.device),
        "layout": tensor.layout,
        "requires_grad": tensor.requires_grad,
        "aliasing": input_paths.aliasing_of(tensor),
    }
    if strides and tensor.layout is torch.strided:
        # The stride of a dimension with fewer than two elements has no effect, so it is None.
        is_used = (size > 1 and tensor.numel() > 0 for size in tensor.shape)
        pairs = zip(is_used, tensor.stride(), strict=True)
        facts["strides"] = tuple(stride if used else None for used, stride in pairs)
    plain = tensor.detach()
    if tensor.layout is not torch.strided:
        facts["coalesced"] = tensor.layout is torch.sparse_coo and tensor.is_coalesced()
        plain = plain.to_dense()
    return TensorSnapshot(plain.cpu().resolve_conj().resolve_neg().clone(), facts)


def _class_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
