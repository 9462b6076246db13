"""Copies of many tensors on many devices. Backward sums the gradients of all copies.

    tensors ──► [CopiedBucket] ──► views on the device of the tensors
            ◄── sum of grads   ──► copies on another device
                               ──► …

Each bucket has its own autograd node. Backward therefore sums and frees the gradients of a bucket
as soon as all replicas have computed them.

``k`` is the number of devices, ``n`` the number of tensors.
"""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, TypeGuard

import torch
from torch import Tensor
from torch.autograd.function import Function

from .._compat import (
    allow_inplace_changes,
    exclude_from_compilation,
    run_first_in_backward,
    track_original_views,
)
from .._device import save_streams, with_saved_streams
from .buckets import REPLICA_BUFFER_SIZE, plan_buckets, sorted_by_index
from .copy import copy_bucket, to_device
from .reduce import add_buckets

_Rows = list[list[Tensor]]


def attached_copies(
    tensors: Sequence[Tensor],
    devices: Sequence[torch.device],
    *,
    buffer_size: int = REPLICA_BUFFER_SIZE,
) -> _Rows:
    """Copy ``tensors`` to each of ``devices``, differentiably.

    Args:
        tensors: ``n`` tensors on any devices, dense or sparse COO.
        devices: ``k`` targets in output order. The same device may appear twice.
        buffer_size: Bytes per bucket, that is, per transfer and per sum of gradients.

    Returns:
        ``k`` lists of ``n`` tensors. They require grad if their source does and grad mode is on.
        The first one on the device of its source shares the memory of the source; in-place
        changes under ``no_grad`` change the source. All others are row-major copies in new memory;
        the copies in one list may share one storage.

        Backward adds the gradients on the device of the source: that of the shared tensor first,
        then the others in the order of ``devices``. A tensor whose copies are not used gets no
        gradient. After an in-place change of the shared tensor, autograd adds its gradient to
        the source directly, apart from the sum of the others.
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

    Args:
        tensors: As for :func:`attached_copies`.
        devices: As for :func:`attached_copies`.
        buffer_size: Bytes per transfer.

    Returns:
        ``k`` lists of ``n`` tensors. The first one on the device of its source is the source
        itself. All others are row-major copies in new memory that require no grad; the copies in
        one list may share one storage.
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
    rows: _Rows = [[] for _ in devices]
    for indices in plan:
        copied = copy_rows([tensors[index] for index in indices], devices)
        for row, members in zip(rows, copied, strict=True):
            row += members
    return sorted_by_index(rows, [index for indices in plan for index in indices])


def _copy_detached(bucket: Sequence[Tensor], devices: Sequence[torch.device]) -> _Rows:
    source = _find_source_index(bucket, devices)
    rows = copy_bucket(bucket, _without(devices, source))
    return rows if source is None else [*rows[:source], list(bucket), *rows[source:]]


def _copy_attached(bucket: Sequence[Tensor], devices: Sequence[torch.device]) -> _Rows:
    source = _find_source_index(bucket, devices)
    others = _without(devices, source)
    if devices and bucket[0].requires_grad and torch.is_grad_enabled():
        rows = _copy_by_autograd_node(bucket, others, with_views=source is not None)
    else:
        # Not views: even under `no_grad`, a view of a leaf that requires grad requires grad.
        rows = [[tensor.detach() for tensor in bucket]] if source is not None else []
        rows += copy_bucket(bucket, others)
    if source is not None:
        # Move the row of the source's device from the front to its place in `devices`.
        rows.insert(source, rows.pop(0))
    return rows


def _copy_by_autograd_node(
    bucket: Sequence[Tensor], others: Sequence[torch.device], *, with_views: bool
) -> _Rows:
    """Return views of ``bucket``, if wanted, and its copies on ``others``, from one node."""
    # If the memory of a view is changed in place, even under `no_grad`, autograd replaces the
    # view's node. By default the new node is a strided view, which sparse gradients cannot pass.
    # A node that repeats the original view passes them.
    with track_original_views():
        outputs = CopiedBucket.apply(others, with_views, *bucket)  # type: ignore[no-untyped-call] # in torch
        rows = [
            list(outputs[start : start + len(bucket)]) for start in _row_starts(outputs, bucket)
        ]
        if with_views:
            rows[0] = list(map(_single_output_view, rows[0]))
    # Backward runs the newest ready node first. This node is older than all nodes of the
    # replicas, so it would run after the backward of the first replica, and all gradients would
    # be kept until then. With the highest priority it runs as soon as it is ready.
    run_first_in_backward(outputs[-1].grad_fn)
    return rows


def _single_output_view(output: Tensor) -> Tensor:
    """Return a view of ``output`` from a node with a single output.

    Autograd can replace this node after an in-place change (see ``_copy_by_autograd_node``). It
    cannot replace the node of the bucket, which has several outputs. It therefore forbids in-place
    changes of these outputs (pytorch/pytorch#37246).
    """
    view = output[...]
    allow_inplace_changes(view)
    run_first_in_backward(view.grad_fn)
    return view


class CopiedBucket(Function):
    """Copies of one bucket of tensors, after views of the tensors if wanted.

    Unlike ``functions.Broadcast``, which behaves as in torch.nn.parallel, there is one node for
    each bucket, so that gradients are freed early. Sources may be on any device, and unused
    copies get no gradient instead of zeros.
    """

    @staticmethod
    @exclude_from_compilation
    def forward(
        ctx: Any, others: Sequence[torch.device], with_views: bool, *bucket: Tensor
    ) -> tuple[Tensor, ...]:
        """Return views of ``bucket`` if ``with_views``, then copies on each of ``others``."""
        ctx.set_materialize_grads(False)  # An unused copy has no gradient.
        ctx.device = bucket[0].device
        ctx.bucket = range(len(bucket))  # Only the length: the node must not keep the tensors.
        save_streams(ctx, [ctx.device, *others])
        views = [tensor[...] for tensor in bucket] if with_views else []
        return tuple(chain(views, *copy_bucket(bucket, others)))

    @staticmethod
    @with_saved_streams
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        """Return the sum of the gradients of each tensor; None if no copy of it was used."""
        rows = [grads[start : start + len(ctx.bucket)] for start in _row_starts(grads, ctx.bucket)]
        return None, None, *_sum_rows(rows, ctx.device)


def _sum_rows(
    rows: Sequence[Sequence[Tensor | None]], device: torch.device
) -> list[Tensor | None]:
    columns = list(zip(*rows, strict=True))
    # If all replicas have dense gradients of a tensor, they are added in one operation with the
    # other such tensors. Sums with sparse or missing gradients are computed one by one.
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
        grads = [grad.to_dense() for grad in grads]  # Returns dense gradients unchanged.
    total = None
    for grad in grads:
        total = grad if total is None else torch.add(total, grad)
    return total


def _find_source_index(bucket: Sequence[Tensor], devices: Sequence[torch.device]) -> int | None:
    device = bucket[0].device
    return devices.index(device) if device in devices else None


def _without(devices: Sequence[torch.device], source: int | None) -> list[torch.device]:
    return [device for index, device in enumerate(devices) if index != source]


def _row_starts(flat: Sequence[object], bucket: Sequence[object]) -> range:
    return range(0, len(flat), len(bucket))
