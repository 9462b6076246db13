"""The autograd Functions, built from differentiable operators."""

import warnings
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from spec_tests.oracle import comm
from spec_tests.oracle._devices import as_device

SCALARS_WARNING = (
    "Was asked to gather along dimension 0, but all input tensors were scalars; will instead "
    "unsqueeze and return a vector."
)


class Scatter:
    """A Function that splits a tensor."""

    @staticmethod
    def apply(
        devices: Sequence[comm.DeviceLike],
        chunk_sizes: Sequence[int] | None,
        dim: int,
        tensor: Tensor,
    ) -> tuple[Tensor, ...]:
        """Return a chunk for each device."""
        return comm.scatter(tensor, devices, chunk_sizes, dim)


class Gather:
    """A Function that concatenates chunks."""

    @staticmethod
    def apply(target: comm.DeviceLike, dim: int, *tensors: Tensor) -> Tensor:
        """Return the concatenated chunks. 0-dim chunks become the elements of a vector."""
        device = comm.destination_device(target)
        if all(each.dim() == 0 for each in tensors) and dim == 0:
            warnings.warn(SCALARS_WARNING, stacklevel=2)
            tensors = tuple(each.unsqueeze(0) for each in tensors)
        return comm.concatenate(tensors, dim, device, tensors[0].dtype)


class Broadcast:
    """A Function that copies tensors to several devices."""

    @staticmethod
    def apply(devices: Sequence[comm.DeviceLike], *tensors: Tensor) -> tuple[Tensor, ...]:
        """Return views of the tensors for the first device, then copies for each other device."""
        views = [each.view_as(each) for each in tensors]
        others = [as_device(device) for device in devices[1:]]
        return (*views, *[comm.copy_to(each, device) for device in others for each in tensors])


class ReduceAddCoalesced:
    """A Function that adds lists of tensors."""

    @staticmethod
    def apply(destination: comm.DeviceLike, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Return, for each position in the lists of ``count`` tensors, the sum of the tensors."""
        columns: list[Any] = [tensors[position::count] for position in range(count)]
        sums = [comm.reduce_add(column, destination).contiguous() for column in columns]
        if not any(each.requires_grad for each in tensors):
            return tuple(sums)
        # If one input of a Function requires a gradient, all differentiable outputs require one.
        differentiable = [each.is_floating_point() or each.is_complex() for each in sums]
        return tuple(map(Tensor.requires_grad_, sums, differentiable))
