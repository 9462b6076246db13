"""Buckets: groups of tensors that are copied, or summed, together.

Small dense tensors of a bucket are packed into one flat tensor for the transfer.

``k`` is the number of devices, ``n`` the number of tensors.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter

import torch
from torch import Tensor

from ._copies import has_own_operators, row_major_copy, to_device
from ._devices import alignment_on
from ._settings import without_grad
from ._torch_private import flatten, have_hooks_or_history, sparse_parts, use_unrecorded_views

#: The default of ``buffer_size`` in ``comm``: the largest number of bytes in a bucket.
DEFAULT_BUFFER_SIZE = 10 * 1024 * 1024

#: The largest number of bytes in a bucket of a replica's parameters. Backward keeps the gradients
#: of a bucket until all of them are computed: with buckets of 10 MiB the peak memory of a backward
#: pass can be 1.4 times as high as with buckets of 2 MiB.
REPLICA_BUFFER_SIZE = 2 * 1024 * 1024


def plan_buckets(
    tensors: Sequence[Tensor], buffer_size: int, *, by_grad: bool = False
) -> list[list[int]]:
    """Group ``tensors``, dense or sparse COO, into buckets.

    Return for each bucket the indices of its tensors, in ascending order. The tensors of a bucket
    have the same dtype, layout and device. With ``by_grad`` they also have the same
    ``requires_grad``, and all or none of them are inference tensors. A bucket has at most
    ``buffer_size`` bytes, not counting the gaps between tensors. Only a bucket with a single
    non-empty tensor may be larger. A tensor with its own operators has a bucket of its own. So has
    a tensor with hooks or a history, if ``by_grad``: if it were unused, and another tensor of its
    bucket used, autograd would call the hooks with None, and Functions of the history with zeros.
    """
    with_own_operators = {*filter(has_own_operators, {*map(type, tensors)})}
    is_alone = have_hooks_or_history(tensors) if by_grad else [False] * len(tensors)
    closed: list[list[int]] = []
    filling: dict[tuple[object, ...], list[int]] = {}
    filled: dict[tuple[object, ...], int] = {}
    for index, (tensor, size) in enumerate(zip(tensors, _sizes_in_bytes(tensors), strict=True)):
        key: tuple[object, ...] = (index,)
        if type(tensor) not in with_own_operators and not is_alone[index]:
            autograd = (tensor.requires_grad, tensor.is_inference()) if by_grad else None
            key = tensor.dtype, tensor.layout, tensor.device, autograd
        bucket = filling.setdefault(key, [])
        total = filled.get(key, 0) + size
        # Close the bucket if it is not empty and would become too large.
        if size < total > buffer_size:
            closed.append(bucket)
            bucket = filling[key] = []
            total = size
        bucket.append(index)
        filled[key] = total
    return closed + list(filling.values())


def _sizes_in_bytes(tensors: Iterable[Tensor]) -> list[int]:
    """Return the bytes of each tensor; for a sparse tensor, of its indices and values."""
    return [
        sum(part.nbytes for part in sparse_parts(tensor)) if tensor.is_sparse else tensor.nbytes
        for tensor in tensors
    ]


def sorted_by_index(
    tensor_lists: Iterable[Sequence[Tensor]], indices: Sequence[int]
) -> list[list[Tensor]]:
    """Return sorted lists. ``indices[i]`` is the sort key of the tensor at position ``i``."""
    order = sorted(range(len(indices)), key=indices.__getitem__)
    if order == list(range(len(indices))):
        return [list(tensors) for tensors in tensor_lists]
    pick = itemgetter(*order)
    return [list(pick(tensors)) for tensors in tensor_lists]


def packed_alignment(devices: Iterable[torch.device], dtype: torch.dtype) -> int:
    """Return the alignment, in elements, of tensors that are packed into one flat tensor.

    With this alignment the tensors are as aligned as new tensors on each of ``devices``. For a
    less aligned tensor a kernel may take a slower path that rounds differently, and tensor cores
    need multiples of 16 bytes for products of half-precision matrices.
    """
    return max(map(alignment_on, devices)) // dtype.itemsize


def pack(tensors: Sequence[Tensor], spacing: int) -> Tensor:
    """Concatenate dense tensors, each at a multiple of ``spacing`` elements.

    The gaps contain zeros. For a single contiguous tensor the result is a view.
    """
    gaps = [-tensor.numel() % spacing for tensor in tensors]
    gaps[-1] = 0
    if not any(gaps):
        return flatten(tensors)
    zeros = tensors[0].new_zeros(max(gaps))
    fillers = {gap: zeros[:gap] for gap in {*gaps} - {0}}
    parts: list[Tensor] = []
    for tensor, gap in zip(tensors, gaps, strict=True):
        parts.append(tensor)
        if gap:  # Parts of size 0 would double the time of the concatenation.
            parts.append(fillers[gap])
    return flatten(parts)


def unpack(flat: Tensor, shapes: Iterable[torch.Size], spacing: int) -> list[Tensor]:
    """Split ``flat``, a result of :func:`pack`, into row-major tensors of ``shapes``.

    The tensors share the memory of ``flat``, except tensors without elements. Each tensor has its
    own version counter: an in-place change of one tensor must not count as a change of the others
    (pytorch/pytorch#13594). One operation splits all consecutive tensors with the same shape,
    which is several times faster than one operation for each tensor.
    """
    runs = [(shape, len(list(run))) for shape, run in groupby(shapes)]
    steps = [-(-shape.numel() // spacing) * spacing for shape, _ in runs]
    lengths = [step * count for step, (_, count) in zip(steps, runs, strict=True)]
    lengths[-1] -= steps[-1] - runs[-1][0].numel()  # No gap follows the last tensor.
    tensors: list[Tensor] = []
    with use_unrecorded_views():
        parts = flat.split_with_sizes(lengths)
        for part, (shape, count), step in zip(parts, runs, steps, strict=True):
            if shape.numel() == 0:
                tensors += [part.new_empty(shape) for _ in range(count)]
            else:
                rows = part.as_strided((count, shape.numel()), (step, 1))
                tensors += rows.view(count, *shape).unbind()
    return tensors


#: Tensors of at least this many bytes are copied separately, because packing takes longer.
_LARGE_BYTES = 1024 * 1024


@without_grad
def copy_bucket(bucket: Sequence[Tensor], devices: Sequence[torch.device]) -> list[list[Tensor]]:
    """Copy a bucket to each of ``devices``. Return a list of copies for each device.

    Each copy is plain, without history, row-major, aligned like a new tensor, and has its own
    version counter. Only the tensors of one list may share a storage.
    """
    if not devices:
        return []
    small, large = partition_by_size(bucket)
    by_device = [[row_major_copy(bucket[index], device) for index in large] for device in devices]
    if small:
        packed = _packed_copies([bucket[index] for index in small], devices)
        by_device = [views + copies for views, copies in zip(packed, by_device, strict=True)]
    return sorted_by_index(by_device, small + large)


def _packed_copies(
    bucket: Sequence[Tensor], devices: Sequence[torch.device]
) -> Iterator[list[Tensor]]:
    """Yield the copies of small dense tensors on each device."""
    spacing = packed_alignment(devices, bucket[0].dtype)
    flat = pack(bucket, spacing)
    shapes = [tensor.shape for tensor in bucket]
    for index, device in enumerate(devices):
        # `flat` is a new tensor, so the first entry of `devices` that is the device of `flat` gets
        # views of it. Later equal entries get views of copies.
        yield unpack(to_device(flat, device, copy=device in devices[:index]), shapes, spacing)


def partition_by_size(bucket: Sequence[Tensor]) -> tuple[list[int], list[int]]:
    """Return the indices of the tensors to pack, sorted by shape, and those of the other tensors.

    Consecutive tensors with the same shape are unpacked in one operation.
    """
    sizes = _sizes_in_bytes(bucket)
    small = [index for index, size in enumerate(sizes) if size < _LARGE_BYTES]
    if len(small) < 2 or bucket[0].layout is not torch.strided:
        return [], list(range(len(bucket)))
    small.sort(key=[tensor.shape for tensor in bucket].__getitem__)
    return small, [index for index, size in enumerate(sizes) if size >= _LARGE_BYTES]
