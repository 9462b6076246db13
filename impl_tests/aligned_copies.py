"""Replicas of torch.nn.parallel whose weights begin where new tensors begin, as impl's do.

torch.nn.parallel packs the copies of a module's tensors without gaps. A kernel may take another
path for a weight that is not aligned, and round otherwise. Which kernels do depends on the
processor, so results of both are compared bit for bit with aligned copies on either side.
"""

import torch
from torch import Tensor

__all__ = ["align_copies"]


def align_copies() -> None:
    """Give each copy that torch.nn.parallel's replicas get memory of its own in this process."""
    copy = torch._C._broadcast_coalesced

    def copy_aligned(
        tensors: list[Tensor], devices: list[int], buffer_size: int
    ) -> list[list[Tensor]]:
        first, *others = copy(tensors, devices, buffer_size)
        return [first, *([tensor.clone() for tensor in row] for row in others)]

    torch._C._broadcast_coalesced = copy_aligned
