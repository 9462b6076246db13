"""CPU copies of a call's arguments, with the same strides, shared storages and requires_grad.

PyTorch creates the sample inputs on the device, and this module copies them to the CPU. Some
sample inputs contain CPU tensors on every device, such as indices. Copies in the other direction
would move these tensors to the device, too.
"""

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

__all__ = ["HostCopies"]


class HostCopies:
    """CPU copies of one call's arguments; shared storages stay shared among the copies."""

    def __init__(self) -> None:
        self._storages: dict[int, torch.UntypedStorage] = {}
        self._originals: list[Any] = []  # keeps alive the storages whose addresses are keys

    def copy(self, pytree: Any) -> Any:
        """Copy a pytree to the CPU, and replace each device in it by the CPU."""
        return tree_map(self._copy_leaf, pytree)

    def _copy_leaf(self, leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            return self._copy_tensor(leaf)
        if isinstance(leaf, torch.device) or (isinstance(leaf, str) and leaf.startswith("sim")):
            return torch.device("cpu")
        return leaf

    def _copy_tensor(self, tensor: Tensor) -> Tensor:
        plain = tensor.detach()
        is_dense = plain.layout == torch.strided
        copy = self._copy_strided(plain) if is_dense else plain.cpu().clone()
        return copy.requires_grad_() if tensor.requires_grad else copy

    def _copy_strided(self, tensor: Tensor) -> Tensor:
        storage = self._copy_storage(tensor.untyped_storage())
        copy = torch.empty(0, dtype=tensor.dtype).set_(
            storage, tensor.storage_offset(), tensor.shape, tensor.stride()
        )
        copy = copy.conj() if tensor.is_conj() else copy
        return copy._neg_view() if tensor.is_neg() else copy

    def _copy_storage(self, storage: torch.UntypedStorage) -> torch.UntypedStorage:
        if storage._cdata not in self._storages:
            self._storages[storage._cdata] = storage.cpu().clone()  # type: ignore[no-untyped-call] # torch
            self._originals.append(storage)
        return self._storages[storage._cdata]
