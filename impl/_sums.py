"""Sums of tensors over devices, in an order that is independent of timing."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ._buckets import pack, packed_alignment, partition_by_size, plan_buckets, unpack
from ._copies import to_device
from ._devices import is_on_cpu
from ._settings import without_grad
from ._torch_private import add_lists


def reduce_tensors(tensors: Sequence[Tensor], ordinal: int) -> Tensor:
    """Add ``tensors`` on the device ``ordinal``, as ``comm.reduce_add`` does."""
    if not tensors:
        raise ValueError("Expected at least one tensor to add")
    for index, tensor in enumerate(tensors):
        _check_addend(tensors[0], tensor, index)
    root_first = _move_root_to_front(tensors, ordinal)
    return _add(root_first, root_first[0].device) if len(tensors) > 1 else tensors[0]


@without_grad
def reduce_lists(
    lists: Sequence[Sequence[Tensor]], ordinal: int, buffer_size: int
) -> list[Tensor]:
    """Add lists of dense tensors index by index, each bucket in one operation."""
    sums: dict[int, Tensor] = {}
    for bucket in zip(*_plan_lists(lists, buffer_size), strict=True):
        members = zip(lists, bucket, strict=True)
        chunks = [[tensors[index] for index in indices] for tensors, indices in members]
        sums.update(zip(bucket[0], _reduce_bucket(chunks, ordinal), strict=True))
    return [sums[index] for index in range(len(lists[0]))]


def add_buckets(lists: Sequence[list[Tensor]], device: torch.device) -> list[Tensor]:
    """Add buckets of dense tensors index by index, in order, on ``device``. Gradients flow back.

    Each bucket is on one device. The sums are new tensors, aligned like separately allocated ones.
    """
    if all(tensors[0].device == device for tensors in lists):
        return add_lists(lists)
    small, large = partition_by_size(lists[0])
    totals = {index: _add([tensors[index] for tensors in lists], device) for index in large}
    if small:
        members = [[tensors[index] for index in small] for tensors in lists]
        totals.update(zip(small, _add_packed(members, device), strict=True))
    return [totals[index] for index in range(len(lists[0]))]


def _add(tensors: Sequence[Tensor], device: torch.device) -> Tensor:
    # The first addition creates a tensor, to which the other addends are added in place. The
    # addends themselves belong to the caller and must not change.
    total = torch.add(to_device(tensors[0], device), to_device(tensors[1], device))
    for other in tensors[2:]:
        total.add_(to_device(other, device))
    return total


def _add_packed(lists: Sequence[Sequence[Tensor]], device: torch.device) -> list[Tensor]:
    # `pack` copies, because there are two or more tensors. The other lists are added to this copy
    # in place.
    spacing = packed_alignment([device], lists[0][0].dtype)
    total = to_device(pack(lists[0], spacing), device)
    for other in lists[1:]:
        total.add_(to_device(pack(other, spacing), device))
    return unpack(total, [tensor.shape for tensor in lists[0]], spacing)


def _plan_lists(lists: Sequence[Sequence[Tensor]], buffer_size: int) -> list[list[list[int]]]:
    """Return the buckets of each list, as lists of indices. Equal lists share one plan."""
    first, *others = lists
    plan = plan_buckets(first, buffer_size)
    kinds = [(tensor.dtype, tensor.shape) for tensor in first]
    return [plan] + [
        plan
        if [(tensor.dtype, tensor.shape) for tensor in other] == kinds
        else plan_buckets(other, buffer_size)
        for other in others
    ]


def _reduce_bucket(lists: Sequence[list[Tensor]], ordinal: int) -> list[Tensor]:
    if _are_equal_dense_lists_on(lists, ordinal):
        if len(lists[0]) == 1:  # torch.add is faster for one large tensor on a GPU.
            totals = [reduce_tensors([tensor for (tensor,) in lists], ordinal)]
        else:
            *others, root = lists
            totals = add_lists([root, *others])
    else:
        totals = _reduce_packed(lists, ordinal)
    # `.data` creates a version counter for each sum (pytorch/pytorch#13594).
    return [total.data for total in totals]


def _reduce_packed(lists: Sequence[list[Tensor]], ordinal: int) -> list[Tensor]:
    first = lists[0]
    kinds = {tuple([(each.dtype, each.shape) for each in tensors]) for tensors in lists}
    is_uniform = len(kinds) == 1
    # If lists differ in shapes or dtypes, gaps would be at different offsets: use no gaps.
    spacing = packed_alignment([first[0].device], first[0].dtype) if is_uniform else 1
    flat = reduce_tensors([pack(tensors, spacing) for tensors in lists], ordinal)
    totals = unpack(flat, [tensor.shape for tensor in first], spacing)
    return totals if is_uniform else [total.clone() for total in totals]


def _check_addend(first: Tensor, tensor: Tensor, index: int) -> None:
    if is_on_cpu(tensor):
        raise AssertionError(
            f"reduce_add expects all inputs to be on GPUs, but input {index} is on CPU"
        )
    if tensor.shape != first.shape:
        got, expected = ("x".join(map(str, each.shape)) for each in (tensor, first))
        raise ValueError(f"input {index} has invalid size: got {got}, but expected {expected}")


def _move_root_to_front(tensors: Sequence[Tensor], ordinal: int) -> list[Tensor]:
    # The last tensor on the destination is added first, as in torch.nn.parallel: the order of the
    # additions decides the rounding.
    for root in reversed(range(len(tensors))):
        if tensors[root].get_device() == ordinal:
            return [tensors[root], *tensors[:root], *tensors[root + 1 :]]
    raise RuntimeError(
        "reduce_add expects destination to be on the same GPU with one of the tensors"
    )


def _are_equal_dense_lists_on(lists: Sequence[Sequence[Tensor]], ordinal: int) -> bool:
    """Return whether lists on the device ``ordinal`` have equal row-major tensors."""
    if len(lists) == 1 or any(tensors[0].get_device() != ordinal for tensors in lists):
        return False
    kinds = {
        tuple(
            [(each.get_device(), each.is_contiguous(), each.shape, each.dtype) for each in tensors]
        )
        for tensors in lists
    }
    return len(kinds) == 1 and all(index == ordinal and dense for index, dense, *_ in kinds.pop())
