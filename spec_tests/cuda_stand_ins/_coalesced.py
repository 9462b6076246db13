"""Stand-in for the coalesced broadcast of many tensors.

Tensors of one dtype and layout are joined into buckets of about ``buffer_size`` bytes.
"""

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from ._broadcast import broadcast
from ._devices import device, primitive

#: The positions in the argument list and the tensors of one transfer.
Bucket = list[tuple[int, Tensor]]


@primitive
def broadcast_coalesced(
    tensors: Sequence[Tensor], devices: Sequence[int], buffer_size: int
) -> list[list[Tensor]]:
    """Stand in for ``torch._C._broadcast_coalesced``.

    Returns:
        A list for each device, in the order of ``tensors``. The first list holds the objects of
        ``tensors``. The others hold row-major leaves that require no gradient. Each leaf has its
        own version counter; the leaves of one bucket share one storage.

    Raises:
        RuntimeError: there is no device (undefined in the real primitive), or a tensor is not on
            the first device.
    """
    if not devices:
        raise RuntimeError("broadcast_coalesced needs at least one device: got none")
    _check_placement(tensors, devices[0])

    outputs = [list(tensors) for _ in devices]
    with torch.accelerator.device_index(device(devices[0]).index):
        for bucket in _buckets(tensors, buffer_size):
            for output, copies in zip(outputs[1:], _copies(bucket, devices), strict=True):
                for (position, _), copy in zip(bucket, copies, strict=True):
                    # `.data` drops the graph; each copy gets its own version counter.
                    output[position] = copy.data
    return outputs


def _check_placement(tensors: Sequence[Tensor], first: int) -> None:
    if any(tensor.get_device() != first for tensor in tensors):
        raise RuntimeError(f"All tensors must be on devices[0]: {first}")


def _buckets(tensors: Iterable[Tensor], limit: int) -> Iterator[Bucket]:
    """Yield buckets of one layout and dtype; a bucket ends when it has ``limit`` bytes."""
    groups: dict[tuple[bool, torch.dtype], Bucket] = {}
    sizes: dict[tuple[bool, torch.dtype], int] = {}
    for position, tensor in enumerate(tensors):
        kind = (tensor.is_sparse, tensor.dtype)
        groups.setdefault(kind, []).append((position, tensor))
        sizes[kind] = sizes.get(kind, 0) + _size(tensor)
        if sizes[kind] >= limit:
            del sizes[kind]
            yield groups.pop(kind)
    yield from groups.values()


def _size(tensor: Tensor) -> int:
    """Return the size of ``tensor`` in bytes, as the buckets count it."""
    if not tensor.is_sparse:
        return tensor.numel() * tensor.element_size()
    indices, values = tensor._indices(), tensor._values()
    # Values count with the size of an index, as in the real primitive.
    return (indices.numel() + values.numel()) * indices.element_size()


def _copies(bucket: Bucket, devices: Sequence[int]) -> Iterator[list[Tensor]]:
    """Yield the copies of the bucket for each device but the first; they share one buffer."""
    members = [tensor for _, tensor in bucket]
    copy = _sparse_copies if members[0].is_sparse else _dense_copies
    for ordinal, copies in zip(devices[1:], copy(members, devices), strict=True):
        with torch.accelerator.device_index(ordinal):
            yield list(copies)


def _dense_copies(members: list[Tensor], devices: Sequence[int]) -> Iterator[Iterator[Tensor]]:
    for buffer in broadcast(_flat(members), devices)[1:]:
        yield _unflat(buffer, members)


def _sparse_copies(members: list[Tensor], devices: Sequence[int]) -> Iterator[Iterator[Tensor]]:
    indices = [member._indices() for member in members]
    values = [member._values() for member in members]
    all_values = _dense_copies(values, devices)
    for new_indices, new_values in zip(_dense_copies(indices, devices), all_values, strict=True):
        yield map(_like, members, new_indices, new_values)


def _flat(members: list[Tensor]) -> Tensor:
    """Return all elements in one vector; a single contiguous member makes a view."""
    return torch._C._nn.flatten_dense_tensors(members)


def _unflat(buffer: Tensor, members: list[Tensor]) -> Iterator[Tensor]:
    """Return row-major views of ``buffer`` in the shapes of ``members``, and new empty tensors."""
    return iter(torch._C._nn.unflatten_dense_tensors(buffer, members))


def _like(member: Tensor, indices: Tensor, values: Tensor) -> Tensor:
    coalesced = member.is_coalesced()
    return torch.sparse_coo_tensor(
        indices, values, member.shape, is_coalesced=coalesced, check_invariants=False
    )
