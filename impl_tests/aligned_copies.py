"""Aligned copies in torch.nn.parallel, so that its results equal impl's bit for bit.

torch.nn.parallel packs the copies of a module's tensors without gaps, so their addresses differ in
alignment from those of new tensors. A kernel may round differently for an unaligned weight, which
depends on the processor. impl aligns its copies.
"""

import torch
from torch import Tensor

__all__ = ["align_copies"]


def align_copies() -> None:
    """Patch torch.nn.parallel in this process so that each of its copies has its own memory."""
    copy = torch._C._broadcast_coalesced

    def copy_aligned(
        tensors: list[Tensor], devices: list[int], buffer_size: int
    ) -> list[list[Tensor]]:
        first, *others = copy(tensors, devices, buffer_size)
        return [first, *([tensor.clone() for tensor in row] for row in others)]

    torch._C._broadcast_coalesced = copy_aligned
