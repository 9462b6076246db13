"""Stand-in for ``torch._C._broadcast_coalesced``.

Tensors of one dtype and layout are copied in buckets of about ``buffer_size`` bytes.
"""

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from ._arguments import as_tensor, integer, list_of, primitive
from ._broadcast import broadcast
from ._devices import device_at_byte

#: The tensors that are copied together, each with its position in the list of arguments.
Bucket = list[tuple[int, Tensor]]


@primitive(
    tensors=list_of(as_tensor), devices=list_of(integer()), buffer_size=integer(0, 2**64 - 1)
)
def broadcast_coalesced(
    tensors: Sequence[Tensor], devices: Sequence[int], buffer_size: int
) -> list[list[Tensor]]:
    """Stand in for ``torch._C._broadcast_coalesced``.

    Returns:
        A list for each device, in the order of ``tensors``. The first list holds the objects of
        ``tensors``. Each other list holds row-major copies that require no gradient. Each copy has
        its own version counter. On one device, the dense copies of one bucket share one storage;
        sparse copies share one for their indices and one for their values.

    Raises:
        RuntimeError: If there are no devices, for which the real primitive is undefined, or if a
            tensor is not on the first device.
    """
    if not devices:
        raise RuntimeError("broadcast_coalesced needs at least one device: got none")
    _check_devices(tensors, devices[0])

    outputs = [list(tensors) for _ in devices]
    with torch.accelerator.device_index(device_at_byte(devices[0]).index):
        for bucket in _buckets(tensors, buffer_size):
            for output, copies in zip(outputs[1:], _copy_bucket(bucket, devices), strict=True):
                for (position, _), copy in zip(bucket, copies, strict=True):
                    # `.data` detaches the copy and gives it its own version counter.
                    output[position] = copy.data
    return outputs


def _check_devices(tensors: Sequence[Tensor], ordinal: int) -> None:
    if any(tensor.get_device() != ordinal for tensor in tensors):
        raise RuntimeError(f"All tensors must be on devices[0]: {ordinal}")


def _buckets(tensors: Iterable[Tensor], buffer_size: int) -> Iterator[Bucket]:
    """Yield buckets of one layout and dtype. A bucket of ``buffer_size`` or more bytes is full."""
    groups: dict[tuple[bool, torch.dtype], Bucket] = {}
    sizes: dict[tuple[bool, torch.dtype], int] = {}
    for position, tensor in enumerate(tensors):
        key = (tensor.is_sparse, tensor.dtype)
        groups.setdefault(key, []).append((position, tensor))
        sizes[key] = sizes.get(key, 0) + _size_in_bytes(tensor)
        if sizes[key] >= buffer_size:
            del sizes[key]
            yield groups.pop(key)
    yield from groups.values()


def _size_in_bytes(tensor: Tensor) -> int:
    """Return the number of bytes that ``tensor`` adds to the size of its bucket."""
    if not tensor.is_sparse:
        return tensor.numel() * tensor.element_size()
    indices, values = tensor._indices(), tensor._values()
    # Like the real primitive, count each value as if it had the size of an index.
    return (indices.numel() + values.numel()) * indices.element_size()


def _copy_bucket(bucket: Bucket, devices: Sequence[int]) -> Iterator[list[Tensor]]:
    """Yield, for each device but the first, the copies of the tensors in ``bucket``."""
    members = [tensor for _, tensor in bucket]
    copy_members = _copy_sparse if members[0].is_sparse else _copy_dense
    for ordinal, copies in zip(devices[1:], copy_members(members, devices), strict=True):
        with torch.accelerator.device_index(device_at_byte(ordinal).index):
            yield list(copies)


def _copy_dense(members: list[Tensor], devices: Sequence[int]) -> Iterator[Iterator[Tensor]]:
    for buffer in broadcast(_flatten(members), devices)[1:]:
        yield _unflatten(buffer, members)


def _copy_sparse(members: list[Tensor], devices: Sequence[int]) -> Iterator[Iterator[Tensor]]:
    indices = [member._indices() for member in members]
    values = [member._values() for member in members]
    all_values = _copy_dense(values, devices)
    for new_indices, new_values in zip(_copy_dense(indices, devices), all_values, strict=True):
        yield map(_sparse_tensor_like, members, new_indices, new_values)


def _flatten(members: list[Tensor]) -> Tensor:
    """Return one vector of all elements. A single contiguous member gives a view of itself."""
    return torch._C._nn.flatten_dense_tensors(members)


def _unflatten(buffer: Tensor, members: list[Tensor]) -> Iterator[Tensor]:
    """Return row-major tensors shaped like ``members``.

    They are views of ``buffer``, except tensors without elements.
    """
    return iter(torch._C._nn.unflatten_dense_tensors(buffer, members))


def _sparse_tensor_like(member: Tensor, indices: Tensor, values: Tensor) -> Tensor:
    coalesced = member.is_coalesced()
    return torch.sparse_coo_tensor(
        indices, values, member.shape, is_coalesced=coalesced, check_invariants=False
    )
