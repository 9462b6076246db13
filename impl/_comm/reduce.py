"""Sums of tensors over devices, in an order that does not depend on timing.

``k`` is the number of addends.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from .._compat import add_lists, add_lists_in_place
from .._device import is_on_cpu
from .buckets import pack, plan_buckets, spacing_on, unpack
from .copy import partition_by_size, to_device

__all__ = ["add_buckets", "reduce_lists", "reduce_tensors"]


def reduce_tensors(tensors: Sequence[Tensor], ordinal: int) -> Tensor:
    """Add ``k`` tensors on the accelerator's device ``ordinal``, differentiably.

    Args:
        tensors: Equal in shape, dense or sparse COO, at least one of them on that device.
        ordinal: Where the sum is wanted.

    Returns:
        A new tensor: the last addend that is there plus the others in order; a single tensor
        itself.

    Raises:
        ValueError: There are no tensors, or two shapes differ.
        AssertionError: A tensor is on the CPU.
        RuntimeError: No tensor is on that device.
    """
    if not tensors:
        raise ValueError("Expected at least one tensor to add")
    for index, tensor in enumerate(tensors):
        _check_addend(tensors[0], tensor, index)
    root_first = _root_first(tensors, ordinal)
    return _add(root_first, root_first[0].device) if len(tensors) > 1 else tensors[0]


def reduce_lists(
    lists: Sequence[Sequence[Tensor]], ordinal: int, buffer_size: int
) -> list[Tensor]:
    """Add ``k`` lists of dense tensors index by index, bucket by bucket.

    Args:
        lists: One list per device, alike in length.
        ordinal: Where the sums are wanted.
        buffer_size: Bytes per bucket.

    Returns:
        Row-major sums in the order of :func:`reduce_tensors`, aligned as new tensors are, without
        history, with version counters of their own. With one list, a bucket's only sum shares its
        addend's memory.

    Raises:
        ValueError: Two buckets differ in their numbers of elements.
        AssertionError: A tensor is on the CPU.
        RuntimeError: No list is on that device.
    """
    sums: dict[int, Tensor] = {}
    with torch.no_grad():
        for bucket in zip(*_plans(lists, buffer_size), strict=True):
            members = zip(lists, bucket, strict=True)
            chunks = [[tensors[index] for index in indices] for tensors, indices in members]
            sums.update(zip(bucket[0], _reduce_bucket(chunks, ordinal), strict=True))
    return [sums[index] for index in range(len(lists[0]))]


def add_buckets(lists: Sequence[list[Tensor]], device: torch.device) -> list[Tensor]:
    """Add lists of dense tensors index by index, in the order given, differentiably.

    Args:
        lists: Two or more buckets with the same shapes, each on one device.
        device: Where the sums are wanted.

    Returns:
        New tensors, aligned as new ones are. What is on ``device`` already in every list is added
        without a flat copy; where something must travel, the small tensors of a list are added
        as they arrive, packed.
    """
    if all(tensors[0].device == device for tensors in lists):
        return _add_lists(lists)
    small, large = partition_by_size(lists[0])
    totals = {index: _add([tensors[index] for tensors in lists], device) for index in large}
    if small:
        members = [[tensors[index] for index in small] for tensors in lists]
        totals.update(zip(small, _add_packed(members, device), strict=True))
    return [totals[index] for index in range(len(lists[0]))]


def _add(tensors: Sequence[Tensor], device: torch.device) -> Tensor:
    # The first sum is new, so the other addends may be added in place; they are the caller's.
    total = torch.add(to_device(tensors[0], device), to_device(tensors[1], device))
    for other in tensors[2:]:
        total.add_(to_device(other, device))
    return total


def _add_lists(lists: Sequence[list[Tensor]]) -> list[Tensor]:
    totals = add_lists(lists[0], lists[1])
    for other in lists[2:]:
        add_lists_in_place(totals, other)
    return totals


def _add_packed(lists: Sequence[Sequence[Tensor]], device: torch.device) -> list[Tensor]:
    # What was packed out of several tensors is new, so the sum may grow in it.
    spacing = spacing_on([device], lists[0][0].dtype)
    total = to_device(pack(lists[0], spacing), device)
    for other in lists[1:]:
        total.add_(to_device(pack(other, spacing), device))
    return unpack(total, [tensor.shape for tensor in lists[0]], spacing)


def _plans(lists: Sequence[Sequence[Tensor]], buffer_size: int) -> list[list[list[int]]]:
    """Cut each list into buckets; alike lists alike, others each by its own dtypes and sizes."""
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
    if _is_local(lists, ordinal):
        *others, root = lists
        totals = _add_lists([root, *others])
    else:
        totals = _reduce_packed(lists, ordinal)
    # `.data` gives each its own version counter, see pytorch/pytorch#13594.
    return [total.data for total in totals]


def _reduce_packed(lists: Sequence[list[Tensor]], ordinal: int) -> list[Tensor]:
    first = lists[0]
    is_uniform = (
        len({tuple((each.dtype, each.shape) for each in tensors) for tensors in lists}) == 1
    )
    # Gaps would stand elsewhere in a list of other sizes or dtypes: those are added without gaps.
    spacing = spacing_on([first[0].device], first[0].dtype) if is_uniform else 1
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


def _root_first(tensors: Sequence[Tensor], ordinal: int) -> list[Tensor]:
    # The last one that is there, as in the reference: the sum's rounding shows the order.
    for root in reversed(range(len(tensors))):
        if tensors[root].get_device() == ordinal:
            return [tensors[root], *tensors[:root], *tensors[root + 1 :]]
    raise RuntimeError(
        "reduce_add expects destination to be on the same GPU with one of the tensors"
    )


def _is_local(lists: Sequence[Sequence[Tensor]], ordinal: int) -> bool:
    """Tell whether two or more lists can be added where they are, row-major as they are."""
    if len(lists) == 1 or any(tensors[0].get_device() != ordinal for tensors in lists):
        return False
    kinds = {tuple(map(_kind, tensors)) for tensors in lists}
    return len(kinds) == 1 and all(at == ordinal and dense for at, dense, _, _ in kinds.pop())


def _kind(tensor: Tensor) -> tuple[int, bool, torch.Size, torch.dtype]:
    return tensor.get_device(), tensor.is_contiguous(), tensor.shape, tensor.dtype
