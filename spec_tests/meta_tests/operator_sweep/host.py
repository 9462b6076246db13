"""A CPU copy of a call on a device: same strides, same sharing, same demands for gradients.

The calls are made on the device and copied to the CPU, not the other way round: what PyTorch
leaves on the CPU in its own tests of CUDA (indices, scalars) stays there.
"""

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

__all__ = ["HostCopies"]


class HostCopies:
    """Copies of one call's values; who shared memory shares it still."""

    def __init__(self) -> None:
        self._storages: dict[int, torch.UntypedStorage] = {}
        self._kept: list[Any] = []

    def of(self, value: Any) -> Any:
        """Copy a value, which may be nested, with its devices replaced by the CPU."""
        return tree_map(self._one, value)

    def _one(self, leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            return self._tensor(leaf)
        if isinstance(leaf, torch.device) or (isinstance(leaf, str) and leaf.startswith("sim")):
            return torch.device("cpu")
        return leaf

    def _tensor(self, tensor: Tensor) -> Tensor:
        plain = tensor.detach()
        copy = self._strided(plain) if plain.layout == torch.strided else plain.cpu().clone()
        return copy.requires_grad_() if tensor.requires_grad else copy

    def _strided(self, tensor: Tensor) -> Tensor:
        storage = self._storage(tensor.untyped_storage())
        copy = torch.empty(0, dtype=tensor.dtype).set_(
            storage, tensor.storage_offset(), tensor.shape, tensor.stride()
        )
        copy = copy.conj() if tensor.is_conj() else copy
        return copy._neg_view() if tensor.is_neg() else copy

    def _storage(self, storage: torch.UntypedStorage) -> torch.UntypedStorage:
        if storage._cdata not in self._storages:
            self._storages[storage._cdata] = storage.cpu().clone()  # type: ignore[no-untyped-call] # torch
            self._kept.append(storage)
        return self._storages[storage._cdata]
