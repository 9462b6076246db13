"""A patch that aligns torch.nn.parallel's copies, so that its results equal impl's bit for bit.

torch.nn.parallel packs the copies of a module's tensors without gaps, so most copies are not
aligned as new tensors are. On some processors a kernel rounds differently if a weight is not
aligned. impl aligns its copies.
"""

import torch
from torch import Tensor

__all__ = ["align_copies"]


def align_copies() -> None:
    """Patch torch.nn.parallel so that it clones each copy into newly allocated, aligned memory."""
    copy = torch._C._broadcast_coalesced

    def copy_aligned(
        tensors: list[Tensor], devices: list[int], buffer_size: int
    ) -> list[list[Tensor]]:
        first, *others = copy(tensors, devices, buffer_size)
        return [first, *([tensor.clone() for tensor in copies] for copies in others)]

    torch._C._broadcast_coalesced = copy_aligned
