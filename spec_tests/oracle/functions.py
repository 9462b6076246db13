"""The autograd Functions, differentiated by plain autograd."""

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
    """The chunks of a tensor."""

    @staticmethod
    def apply(
        devices: Sequence[comm.DeviceLike],
        chunk_sizes: Sequence[int] | None,
        dim: int,
        tensor: Tensor,
    ) -> tuple[Tensor, ...]:
        """One chunk a device."""
        return comm.scatter(tensor, devices, chunk_sizes, dim)


class Gather:
    """Chunks joined."""

    @staticmethod
    def apply(target: comm.DeviceLike, dim: int, *tensors: Tensor) -> Tensor:
        """One tensor; of chunks without dimensions a vector."""
        device = comm.destination_of(target)
        if all(each.dim() == 0 for each in tensors) and dim == 0:
            warnings.warn(SCALARS_WARNING, stacklevel=2)
            tensors = tuple(each.unsqueeze(0) for each in tensors)
        return comm.joined(tensors, dim, device, tensors[0].dtype)


class Broadcast:
    """Copies on every device."""

    @staticmethod
    def apply(devices: Sequence[comm.DeviceLike], *tensors: Tensor) -> tuple[Tensor, ...]:
        """Views on the first device, then the copies of each other device in turn."""
        views = [each.view_as(each) for each in tensors]
        places = [as_device(device) for device in devices[1:]]
        return (*views, *[comm.copied(each, device) for device in places for each in tensors])


class ReduceAddCoalesced:
    """Sums of rows."""

    @staticmethod
    def apply(destination: comm.DeviceLike, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        """The sum of each of the ``count`` positions."""
        columns: list[Any] = [tensors[position::count] for position in range(count)]
        sums = [comm.reduce_add(column, destination).contiguous() for column in columns]
        if not any(each.requires_grad for each in tensors):
            return tuple(sums)
        # What one Function returns requires gradients together.
        kinds = [each.is_floating_point() or each.is_complex() for each in sums]
        return tuple(map(Tensor.requires_grad_, sums, kinds))
