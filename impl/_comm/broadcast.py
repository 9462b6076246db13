"""Copies of many tensors on many devices, through which gradients flow back as sums.

    t ──► [CopiedBucket] ──► row of the source's device: t itself, viewed
      ◄── sum of rows    ──► row of another device: copies
                         ──► …

There is one autograd node per bucket, so a sum is made, and the gradients of its replicas are
freed, as soon as backward has passed that bucket's tensors in every replica.

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

__all__ = ["attached_copies", "detached_copies"]

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
        ``k`` lists of ``n`` tensors, which require grad where the source does and grad mode is
        on. The first one on a source's own device shares its memory; under ``no_grad`` it may be
        changed in place, which writes through. All others are row-major copies that share no
        memory with it, though those of one list may share one storage.

        Backward adds the gradients on the source's device, that of its own device first, then
        in the order of ``devices``; a tensor of which no copy was used gets no gradient. Once
        memory is changed in place, the gradient of what shares it goes straight to the source,
        where autograd adds it to the sum of the others.
    """
    return _by_bucket(
        _attached_rows, tensors, devices, plan_buckets(tensors, buffer_size, by_grad=True)
    )


def detached_copies(
    tensors: Sequence[Tensor],
    devices: Sequence[torch.device],
    *,
    buffer_size: int = REPLICA_BUFFER_SIZE,
) -> _Rows:
    """Copy ``tensors`` to each of ``devices``, without history.

    Args:
        tensors: ``n`` tensors on any devices, dense or sparse COO.
        devices: ``k`` targets in output order. The same device may appear twice.
        buffer_size: Bytes per transfer.

    Returns:
        ``k`` lists of ``n`` tensors. The first one on a source's own device is the source, the
        very object. All others are row-major copies that require no grad and share no memory
        with it, though those of one list may share one storage.
    """
    return _by_bucket(_detached_rows, tensors, devices, plan_buckets(tensors, buffer_size))


def _by_bucket(
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


def _detached_rows(bucket: Sequence[Tensor], devices: Sequence[torch.device]) -> _Rows:
    own = _own_index(bucket, devices)
    rows = copy_bucket(bucket, _without(devices, own))
    return rows if own is None else [*rows[:own], list(bucket), *rows[own:]]


def _attached_rows(bucket: Sequence[Tensor], devices: Sequence[torch.device]) -> _Rows:
    own = _own_index(bucket, devices)
    others = _without(devices, own)
    if devices and bucket[0].requires_grad and torch.is_grad_enabled():
        rows = _node_rows(bucket, others, with_views=own is not None)
    else:
        # Not a view: that of a leaf says that it requires grad even while none is recorded.
        rows = [[tensor.detach() for tensor in bucket]] if own is not None else []
        rows += copy_bucket(bucket, others)
    if own is not None:
        # The source's own row came first; it belongs where its device is listed.
        rows.insert(own, rows.pop(0))
    return rows


def _node_rows(
    bucket: Sequence[Tensor], others: Sequence[torch.device], *, with_views: bool
) -> _Rows:
    """Give the views of ``bucket``, if wanted, then its copies on ``others``, all of one node."""
    # When the memory of a view is changed in place, even under `no_grad`, autograd replaces the
    # view's node. By default the new node works by strides, which sparse gradients cannot pass;
    # a node that repeats the view passes them all.
    with track_original_views():
        outputs = CopiedBucket.apply(others, with_views, *bucket)  # type: ignore[no-untyped-call] # in torch
        rows = [list(outputs[start : start + len(bucket)]) for start in _starts(outputs, bucket)]
        if with_views:
            rows[0] = list(map(_single_output_view, rows[0]))
    # Backward runs the youngest node that is ready. This one is older than every node of the
    # replicas, so it would run when the first replica's backward has ended, and all gradients
    # would be held until then. As the youngest it runs as soon as its own gradients are there.
    run_first_in_backward(outputs[-1].grad_fn)
    return rows


def _single_output_view(output: Tensor) -> Tensor:
    """View ``output``, which is a view itself, once more, by a node with this one output.

    That node autograd can replace when the memory changes (see ``_node_rows``). It cannot replace
    the node of the bucket, which has several outputs, and so refuses to change them
    (pytorch/pytorch#37246).
    """
    view = output[...]
    allow_inplace_changes(view)
    run_first_in_backward(view.grad_fn)
    return view


class CopiedBucket(Function):
    """One bucket's tensors as they are, if wanted, followed by its copies per device.

    ``functions.Broadcast``, which callers may apply themselves, has to do what the reference's
    does: one node for all tensors, which must be on the first device, and zeros for the copies
    that are not used. Replicas want a node a bucket, so that gradients are freed early, sources on
    any device, and no gradient for what is not used.
    """

    @staticmethod
    @exclude_from_compilation
    def forward(
        ctx: Any, others: Sequence[torch.device], with_views: bool, *bucket: Tensor
    ) -> tuple[Tensor, ...]:
        """Copy ``bucket`` to ``others``; a view of it comes first if ``with_views``.

        Autograd runs a node on the device of its first output: the source's, where the
        gradients are added, so that they always arrive in the same order.
        """
        # A copy that is not used has no gradient, where autograd would make zeros.
        ctx.set_materialize_grads(False)
        ctx.device = bucket[0].device
        # Their number is enough: the node must not keep the tensors.
        ctx.bucket = range(len(bucket))
        save_streams(ctx, [ctx.device, *others])
        views = [tensor[...] for tensor in bucket] if with_views else []
        return tuple(chain(views, *copy_bucket(bucket, others)))

    @staticmethod
    @with_saved_streams
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        """Add the gradients of each tensor; None where no copy of it was used."""
        rows = [grads[start : start + len(ctx.bucket)] for start in _starts(grads, ctx.bucket)]
        return None, None, *_sum_rows(rows, ctx.device)


def _sum_rows(
    rows: Sequence[Sequence[Tensor | None]], device: torch.device
) -> list[Tensor | None]:
    columns = list(zip(*rows, strict=True))
    # Where every replica has a dense gradient, the bucket's sums are made together. A sum of which
    # one is sparse, or missing since its replica did not use the tensor, is made by itself.
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
        grads = [grad.to_dense() for grad in grads]  # What is dense stays itself.
    total = None
    for grad in grads:
        total = grad if total is None else torch.add(total, grad)
    return total


def _own_index(bucket: Sequence[Tensor], devices: Sequence[torch.device]) -> int | None:
    """Give the index of the first of ``devices`` that is the bucket's own device."""
    device = bucket[0].device
    return devices.index(device) if device in devices else None


def _without(devices: Sequence[torch.device], own: int | None) -> list[torch.device]:
    return [device for index, device in enumerate(devices) if index != own]


def _starts(flat: Sequence[object], bucket: Sequence[object]) -> range:
    return range(0, len(flat), len(bucket))
