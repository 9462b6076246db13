"""Copies and sums of many tensors, in buckets.

    forward:    tensors ──► CopiedBucket ──► views on the device of the tensors
                                         ──► copies on each of the other devices
    backward:   sums    ◄── CopiedBucket ◄── gradients of the views and copies

A bucket is a group of tensors that are copied, or summed, together. Small dense tensors of a
bucket are packed into one flat tensor for the transfer. Each bucket has its own autograd node.
Backward therefore sums and frees the gradients of a bucket as soon as all replicas have computed
them. The order of a sum does not depend on timing.

``k`` is the number of devices, ``n`` the number of tensors.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial, reduce
from itertools import chain, groupby
from operator import itemgetter
from typing import Any, TypeGuard, TypeVar

import torch
from torch import Tensor
from torch.autograd.function import Function

from ._copies import (
    PLAIN_CLASSES,
    is_wrapper,
    is_wrapper_class,
    row_major_copy,
    to_device,
    with_class_and_attributes,
    without_grad,
    wrapper_to_device,
)
from ._devices import alignment_on, is_on_cpu
from ._streams import save_streams, with_saved_streams
from ._torch_private import (
    add_lists,
    allow_inplace_changes,
    call_with_inference_mode,
    exclude_from_compilation,
    flatten,
    run_first_in_backward,
    sparse_parts,
    track_original_views,
    use_plain_operators,
    use_unrecorded_views,
)

# Buckets: groups of tensors that are copied, or summed, together.


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
    non-empty tensor may be larger. A tensor with its own operators has a bucket of its own.
    """
    wrappers = {kind for kind in set(map(type, tensors)) if is_wrapper_class(kind)}
    closed: list[list[int]] = []
    filling: dict[tuple[object, ...], list[int]] = {}
    filled: dict[tuple[object, ...], int] = {}
    for index, (tensor, size) in enumerate(zip(tensors, sizes_in_bytes(tensors), strict=True)):
        kind: tuple[object, ...] = (index,)
        if type(tensor) not in wrappers:
            autograd = (tensor.requires_grad, tensor.is_inference()) if by_grad else None
            kind = tensor.dtype, tensor.layout, tensor.device, autograd
        bucket = filling.setdefault(kind, [])
        total = filled.get(kind, 0) + size
        # Close the bucket if it is not empty and would become too large.
        if size < total > buffer_size:
            closed.append(bucket)
            bucket = filling[kind] = []
            total = size
        bucket.append(index)
        filled[kind] = total
    return closed + list(filling.values())


def sizes_in_bytes(tensors: Iterable[Tensor]) -> list[int]:
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
    """Concatenate dense tensors into one flat tensor.

    Each tensor begins at a multiple of ``spacing`` elements. The gaps between tensors contain
    zeros. For a single contiguous tensor the result is a view.
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
    """Copy a bucket to each of ``devices``.

    The tensors of a bucket have the same device, dtype and layout. Return for each device a list
    of plain tensors without history, in the order of the bucket. Each tensor is row-major, is
    aligned like a new tensor, and has its own version counter. The tensors of one list may share
    one storage. Different lists share no storage with each other or with the bucket.
    """
    if not devices:
        return []
    small, large = partition_by_size(bucket)
    rows = [[row_major_copy(bucket[index], device) for index in large] for device in devices]
    if small:
        packed = _packed_copies([bucket[index] for index in small], devices)
        rows = [pieces + row for pieces, row in zip(packed, rows, strict=True)]
    return sorted_by_index(rows, small + large)


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
    """Return the indices of the tensors to pack, and the indices of those to copy separately.

    Sparse tensors are not packed, nor is a single small tensor. The tensors to pack are sorted by
    shape: consecutive tensors with the same shape are unpacked in one operation.
    """
    sizes = sizes_in_bytes(bucket)
    small = [index for index, size in enumerate(sizes) if size < _LARGE_BYTES]
    if len(small) < 2 or bucket[0].layout is not torch.strided:
        return [], list(range(len(bucket)))
    small.sort(key=[tensor.shape for tensor in bucket].__getitem__)
    return small, [index for index, size in enumerate(sizes) if size >= _LARGE_BYTES]


# Sums of tensors over devices, in an order that is independent of timing.


def reduce_tensors(tensors: Sequence[Tensor], ordinal: int) -> Tensor:
    """Add ``tensors`` on the device ``ordinal``, as ``comm.reduce_add`` does.

    Gradients flow back to the tensors.
    """
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
    """Add lists of dense tensors index by index, as ``comm.reduce_add_coalesced`` does.

    The sums are on the device ``ordinal``. Each bucket of at most ``buffer_size`` bytes is added
    in one operation.
    """
    sums: dict[int, Tensor] = {}
    for bucket in zip(*_plan_lists(lists, buffer_size), strict=True):
        members = zip(lists, bucket, strict=True)
        chunks = [[tensors[index] for index in indices] for tensors, indices in members]
        sums.update(zip(bucket[0], _reduce_bucket(chunks, ordinal), strict=True))
    return [sums[index] for index in range(len(lists[0]))]


def add_buckets(lists: Sequence[list[Tensor]], device: torch.device) -> list[Tensor]:
    """Add two or more buckets of dense tensors index by index, in the given order, on ``device``.

    The buckets have the same shapes, and each is on one device. Gradients flow back to the
    tensors. If a bucket is not on ``device``, small tensors are packed for the transfer. The sums
    are new tensors that are aligned like separately allocated ones.
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
    """Return for each list its buckets. A bucket is a list of indices of tensors.

    For lists with equal dtypes and shapes the buckets are computed once.
    """
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
        if len(lists[0]) == 1:  # A large tensor: on a GPU, torch.add is faster for it.
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
    """Return whether there are several lists of equal row-major tensors on the device ``ordinal``.

    Tensors are equal if they have the same shape and dtype.
    """
    if len(lists) == 1 or any(tensors[0].get_device() != ordinal for tensors in lists):
        return False
    kinds = {
        tuple(
            [(each.get_device(), each.is_contiguous(), each.shape, each.dtype) for each in tensors]
        )
        for tensors in lists
    }
    return len(kinds) == 1 and all(index == ordinal and dense for index, dense, *_ in kinds.pop())


#: For each device, the list of its tensors.
_Rows = list[list[Tensor]]
_Member = TypeVar("_Member")


def attached_copies(
    tensors: Sequence[Tensor],
    devices: Sequence[torch.device],
    *,
    buffer_size: int = REPLICA_BUFFER_SIZE,
) -> _Rows:
    """Copy ``tensors`` to each of ``devices``. Gradients flow back to ``tensors``.

    Args:
        tensors: ``n`` tensors on any devices, dense or sparse COO.
        devices: ``k`` targets in output order. The same device may appear twice.
        buffer_size: The largest number of bytes of a bucket. A bucket is copied in one transfer,
            and its gradients are summed in one operation.

    Returns:
        ``k`` lists of ``n`` tensors. A tensor requires grad if its source does and grad mode is
        on. In the first list for the source's device, the tensor shares the memory of the
        source: an in-place change under ``no_grad`` changes the source. In all other lists, the
        tensor is a row-major copy in new memory. The copies in one list may share one storage.
        Copies of inference tensors are inference tensors if gradients flow back to them.

        Backward adds the gradients on the device of the source: first the gradient of the shared
        tensor, then the gradients of the copies in the order of ``devices``. A source gets no
        gradient if neither the shared tensor nor a copy is used. After an in-place change of the
        shared tensor, its gradient is not part of this sum: autograd adds it to the gradient of
        the source separately.
    """
    return _copy_bucket_by_bucket(
        _copy_attached, tensors, devices, plan_buckets(tensors, buffer_size, by_grad=True)
    )


def detached_copies(
    tensors: Sequence[Tensor],
    devices: Sequence[torch.device],
    *,
    buffer_size: int = REPLICA_BUFFER_SIZE,
) -> _Rows:
    """Copy ``tensors`` to each of ``devices``, without history.

    The arguments are those of :func:`attached_copies`. Return a list of copies for each device.
    The first list for the device of a source holds the source itself. All other lists hold
    row-major copies in new memory that do not require grad. The copies in one list may share one
    storage.
    """
    return _copy_bucket_by_bucket(
        _copy_detached, tensors, devices, plan_buckets(tensors, buffer_size)
    )


def _copy_bucket_by_bucket(
    copy_rows: Callable[[Sequence[Tensor], Sequence[torch.device]], _Rows],
    tensors: Sequence[Tensor],
    devices: Sequence[torch.device],
    plan: Sequence[Sequence[int]],
) -> _Rows:
    """Copy ``tensors`` to each of ``devices``, bucket by bucket.

    ``plan`` contains the indices of the tensors in each bucket. ``copy_rows`` copies one bucket.
    Return for each device a list of copies, in the order of ``tensors``.
    """
    rows: _Rows = [[] for _ in devices]
    for indices in plan:
        bucket = [tensors[index] for index in indices]
        is_plain = PLAIN_CLASSES.issuperset(map(type, bucket)) or is_wrapper(bucket[0])
        # A subclass may refuse an operator that the copies need, and the bucket of a tensor of a
        # subclass would give its class to all tensors.
        with nullcontext() if is_plain else use_plain_operators():
            copied = copy_rows(bucket, devices)
        for row, members in zip(rows, copied, strict=True):
            row += members
    rows = sorted_by_index(rows, [index for indices in plan for index in indices])
    for index, tensor in enumerate(tensors):
        if type(tensor) not in PLAIN_CLASSES or tensor.__dict__:
            for row in rows:
                row[index] = with_class_and_attributes(row[index], tensor)
    return rows


def _copy_detached(bucket: Sequence[Tensor], devices: Sequence[torch.device]) -> _Rows:
    if is_wrapper(bucket[0]):
        return without_grad(_copy_wrapper)(bucket[0], devices)
    source, other_devices = _separate_source(bucket, devices)
    rows = copy_bucket(bucket, other_devices)
    return rows if source is None else [*rows[:source], list(bucket), *rows[source:]]


def _copy_attached(bucket: Sequence[Tensor], devices: Sequence[torch.device]) -> _Rows:
    if is_wrapper(bucket[0]):
        tensor = bucket[0]
        records = tensor.requires_grad and _records_gradients()
        # The first copy is another object: if it were a Parameter, the replica would have it in
        # `parameters()`.
        return _copy_wrapper(tensor.view_as(tensor) if records else tensor.detach(), devices)
    source, other_devices = _separate_source(bucket, devices)
    if bucket[0].requires_grad and _records_gradients():
        # If the memory of a view is changed in place, even under `no_grad`, autograd replaces the
        # view's node. By default the new node is a strided view, which raises an error for sparse
        # gradients. A node that repeats the original view operation accepts sparse gradients.
        rows = track_original_views(
            lambda: _copy_by_autograd_node(bucket, other_devices, with_views=source is not None)
        )
    else:
        # Use `detach`, not a view: a view of a leaf that requires grad requires grad, even under
        # `no_grad`.
        rows = [[tensor.detach() for tensor in bucket]] if source is not None else []
        rows += copy_bucket(bucket, other_devices)
    if source is not None:
        # Move the row for the sources' device from the front to its index in `devices`.
        rows.insert(source, rows.pop(0))
    return rows


def _records_gradients() -> bool:
    # In inference mode autograd records nothing, even if grad mode is on.
    return torch.is_grad_enabled() and not torch.is_inference_mode_enabled()


def _copy_wrapper(tensor: Tensor, devices: Sequence[torch.device]) -> _Rows:
    """Copy a tensor by the operators of its class. The first row on its device has no copy."""
    source, _ = _separate_source([tensor], devices)
    rows: _Rows = []
    for index, device in enumerate(devices):
        rows.append([tensor if index == source else wrapper_to_device(tensor, device, copy=True)])
        if tensor.requires_grad and index < len(devices) - 1:
            # Autograd adds the gradients of a tensor in the order in which they are ready. Each
            # view gets two gradients only, whose sum does not depend on their order.
            tensor = tensor.view_as(tensor)
    return rows


def _copy_by_autograd_node(
    bucket: Sequence[Tensor], other_devices: Sequence[torch.device], *, with_views: bool
) -> _Rows:
    """Return the outputs of one :class:`CopiedBucket` node: for each device a list of tensors."""
    outputs = CopiedBucket.apply(other_devices, with_views, *bucket)  # type: ignore[no-untyped-call] # in torch
    rows: _Rows = _as_rows(outputs, len(bucket))
    if with_views:
        rows[0] = list(map(_single_output_view, rows[0]))
    # Backward runs the newest ready node first. This node is older than all nodes of the
    # replicas. By default it would run after the backward of the whole first replica, and all
    # gradients would be kept until then. With the highest priority it runs as soon as it is ready.
    run_first_in_backward(outputs[-1].grad_fn)
    return rows


def _single_output_view(output: Tensor) -> Tensor:
    """Return a view of ``output`` that may be changed in place.

    ``output`` is one of several outputs of the bucket's node. Autograd forbids in-place changes of
    such outputs (pytorch/pytorch#37246), because it cannot replace their node. The view has its
    own node with one output, which autograd can replace (see ``_copy_attached``).
    """
    if output.is_inference():
        # Autograd forbids in-place changes of inference tensors, and views of them have no node.
        return output
    view = output[...]
    allow_inplace_changes(view)
    run_first_in_backward(view.grad_fn)
    return view


class CopiedBucket(Function):
    """Copies of one bucket of tensors, and views of the tensors if they are requested.

    This Function differs from ``functions.Broadcast``, which behaves as in torch.nn.parallel:
    each bucket has its own node, so that gradients are freed early; the tensors may be on any
    device; and the gradient of an unused copy is None, not zeros.
    """

    @staticmethod
    @exclude_from_compilation
    def forward(
        ctx: Any, other_devices: Sequence[torch.device], with_views: bool, *bucket: Tensor
    ) -> tuple[Tensor, ...]:
        """Return copies on ``other_devices``, after views of ``bucket`` if ``with_views``."""
        ctx.set_materialize_grads(False)  # The gradient of an unused copy is None, not zeros.
        ctx.device = bucket[0].device
        ctx.bucket_size = len(bucket)
        save_streams(ctx, [ctx.device, *other_devices])
        views = [tensor[...] for tensor in bucket] if with_views else []
        copy = partial(copy_bucket, bucket, other_devices)
        # Copies of inference tensors are inference tensors: autograd refuses to save them, and
        # views of them have no gradients. So all replicas compute as the original module does.
        copies = call_with_inference_mode(bucket[0].is_inference(), copy)
        return tuple(chain(views, *copies))

    @staticmethod
    @with_saved_streams
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        """Return the sum of the gradients of each tensor; None if no copy of it was used."""
        return None, None, *_sum_rows(_as_rows(grads, ctx.bucket_size), ctx.device)


def _sum_rows(
    rows: Sequence[Sequence[Tensor | None]], device: torch.device
) -> list[Tensor | None]:
    """Return the sum of the gradients of each tensor, on ``device``.

    ``rows`` has one list of gradients for each device.
    """
    columns = list(zip(*rows, strict=True))
    # One operation adds the gradients of all tensors whose gradients are dense on all devices.
    # Sums with sparse or missing gradients are computed tensor by tensor.
    dense = {index: column for index, column in enumerate(columns) if _is_dense(column)}
    sums: dict[int, Tensor | None] = {}
    if len(rows) > 1 and dense:
        totals = add_buckets(list(map(list, zip(*dense.values(), strict=True))), device)
        sums.update(zip(dense, totals, strict=True))
    return [
        sums[index] if index in sums else _sum_column(column, device)
        for index, column in enumerate(columns)
    ]


def _is_dense(column: Sequence[Tensor | None]) -> TypeGuard[Sequence[Tensor]]:
    return all(grad is not None and grad.layout is torch.strided for grad in column)


def _sum_column(column: Sequence[Tensor | None], device: torch.device) -> Tensor | None:
    grads = [to_device(grad, device) for grad in column if grad is not None]
    if not all(grad.is_sparse for grad in grads):
        # `to_dense` returns dense gradients unchanged.
        grads = [grad.to_dense() for grad in grads]
    return reduce(torch.add, grads) if grads else None


def _separate_source(
    bucket: Sequence[Tensor], devices: Sequence[torch.device]
) -> tuple[int | None, list[torch.device]]:
    """Return the index of the first entry of ``devices`` on the bucket's device, and the rest.

    The index is None if there is no such entry.
    """
    device = bucket[0].device
    source = devices.index(device) if device in devices else None
    return source, [other for index, other in enumerate(devices) if index != source]


def _as_rows(flat: Sequence[_Member], size: int) -> list[list[_Member]]:
    return [list(flat[start : start + size]) for start in range(0, len(flat), size)]
