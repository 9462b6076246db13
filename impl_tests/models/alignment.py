"""DataParallel classes whose replicas have aligned tensors.

With aligned tensors the results of impl and torch.nn.parallel are equal bit for bit. Otherwise
results may differ. Many copies of parameters share one allocation, and the offsets of the copies
differ between impl and torch.nn.parallel. On the CPU the rounding of a matrix-vector product
depends on the address of the matrix.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["align_replicas"]

#: The alignment of new tensors in host memory, in bytes.
_ALIGNMENT = 64


def align_replicas(wrapper: type[nn.Module]) -> type[nn.Module]:
    """Return a subclass of a DataParallel class whose replicas have aligned tensors."""

    class Aligned(wrapper):  # type: ignore[misc, valid-type] # the base is an argument
        def replicate(self, module: nn.Module, device_ids: Sequence[int]) -> list[nn.Module]:
            replicas: list[nn.Module] = super().replicate(module, device_ids)
            for replica in replicas[1:]:  # Replica 0 has the module's own tensors.
                _align_tensors(replica)
            return replicas

    return Aligned


def _align_tensors(replica: nn.Module) -> None:
    """Replace misaligned tensors of ``replica`` by clones. Tied tensors stay tied."""
    clones: dict[int, Tensor] = {}

    def clone_misaligned(value: Any) -> Any:
        if isinstance(value, list):  # The list _flat_weights of a recurrent module.
            return [clone_misaligned(element) for element in value]
        if not _is_misaligned(value):
            return value
        if id(value) not in clones:
            clones[id(value)] = value.clone()
        return clones[id(value)]

    for module in replica.modules():
        for names in (vars(module), module._parameters, module._buffers):
            names.update({name: clone_misaligned(value) for name, value in names.items()})


def _is_misaligned(value: Any) -> bool:
    is_strided = isinstance(value, Tensor) and value.layout == torch.strided
    return is_strided and value.data_ptr() % _ALIGNMENT != 0
