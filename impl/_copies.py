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

from ._buckets import REPLICA_BUFFER_SIZE, buckets, sorted_by_place
from ._internals import allow_changes, run_first_in_backward, use_repeated_views
from ._kept_streams import keep_streams, on_kept_streams
from ._sums import add_buckets
from ._transfers import copy_bucket, send

__all__ = ["copies", "detached_copies"]

_Rows = list[list[Tensor]]


def copies(
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
        _attached_rows, tensors, devices, buckets(tensors, buffer_size, by_grad=True)
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
    return _by_bucket(_detached_rows, tensors, devices, buckets(tensors, buffer_size))


def _by_bucket(
    copy_rows: Callable[[Sequence[Tensor], Sequence[torch.device]], _Rows],
    tensors: Sequence[Tensor],
    devices: Sequence[torch.device],
    plan: Sequence[Sequence[int]],
) -> _Rows:
    rows: _Rows = [[] for _ in devices]
    for places in plan:
        copied = copy_rows([tensors[place] for place in places], devices)
        for row, members in zip(rows, copied, strict=True):
            row += members
    return sorted_by_place(rows, [place for places in plan for place in places])


def _detached_rows(bucket: Sequence[Tensor], devices: Sequence[torch.device]) -> _Rows:
    home = _home(bucket, devices)
    rows = copy_bucket(bucket, _without(devices, home))
    return rows if home is None else [*rows[:home], list(bucket), *rows[home:]]


def _attached_rows(bucket: Sequence[Tensor], devices: Sequence[torch.device]) -> _Rows:
    home = _home(bucket, devices)
    others = _without(devices, home)
    if devices and bucket[0].requires_grad and torch.is_grad_enabled():
        rows = _node_rows(bucket, others, is_at_home=home is not None)
    else:
        # A view of a leaf would say that it requires grad even where none is recorded.
        rows = [[tensor.detach() for tensor in bucket]] if home is not None else []
        rows += copy_bucket(bucket, others)
    if home is not None:
        rows.insert(home, rows.pop(0))
    return rows


def _node_rows(
    bucket: Sequence[Tensor], others: Sequence[torch.device], *, is_at_home: bool
) -> _Rows:
    """Give the views of ``bucket``, if wanted, then its copies on ``others``, all of one node."""
    # Of a view whose memory has changed, even under `no_grad`, autograd makes the node anew. It
    # is to repeat the view, which any gradient passes, not to make it by strides, which a sparse
    # one does not.
    with use_repeated_views():
        outputs = CopiedBucket.apply(others, is_at_home, *bucket)  # type: ignore[no-untyped-call] # in torch
        rows = [list(outputs[start : start + len(bucket)]) for start in _starts(outputs, bucket)]
        if is_at_home:
            rows[0] = list(map(_lone_view, rows[0]))
    # Of the nodes that are ready autograd takes the youngest. This one, older than all that use
    # it, would wait for the end of the first replica's backward with all gradients in hand.
    run_first_in_backward(outputs[-1].grad_fn)
    return rows


def _lone_view(output: Tensor) -> Tensor:
    """View an output that is a view itself, by a node of its own.

    The node can then be made anew (see above), straight at the base. For an output of a function
    of several tensors autograd refuses to (pytorch/pytorch#37246), and for any but the first it
    cannot.
    """
    view = output[...]
    allow_changes(view)
    run_first_in_backward(view.grad_fn)
    return view


class CopiedBucket(Function):
    """One bucket's tensors as they are, if wanted, followed by its copies per device."""

    @staticmethod
    def forward(
        ctx: Any, others: Sequence[torch.device], is_at_home: bool, *bucket: Tensor
    ) -> tuple[Tensor, ...]:
        """Copy ``bucket`` to ``others``; a view of it comes first if ``is_at_home``.

        Autograd runs a node on the device of its first output: the source's, where the
        gradients are added, so that they always arrive in the same order.
        """
        ctx.set_materialize_grads(False)
        ctx.device = bucket[0].device
        ctx.bucket = range(len(bucket))
        keep_streams(ctx, [ctx.device, *others])
        views = [tensor[...] for tensor in bucket] if is_at_home else []
        return tuple(chain(views, *copy_bucket(bucket, others)))

    @staticmethod
    @on_kept_streams
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        """Add the gradients of each tensor; None where no copy of it was used."""
        rows = [grads[start : start + len(ctx.bucket)] for start in _starts(grads, ctx.bucket)]
        return None, None, *_sums(rows, ctx.device)


def _sums(rows: Sequence[Sequence[Tensor | None]], device: torch.device) -> list[Tensor | None]:
    columns = list(zip(*rows, strict=True))
    dense = {place: column for place, column in enumerate(columns) if _is_dense(column)}
    sums: dict[int, Tensor | None] = {}
    if len(rows) > 1 and dense:
        totals = add_buckets(list(map(list, zip(*dense.values(), strict=True))), device)
        sums.update(zip(dense, totals, strict=True))
    return [
        sums[place] if place in sums else _sum(column, device)
        for place, column in enumerate(columns)
    ]


def _is_dense(column: Sequence[Tensor | None]) -> TypeGuard[Sequence[Tensor]]:
    return all(grad is not None and grad.layout is torch.strided for grad in column)


def _sum(column: Sequence[Tensor | None], device: torch.device) -> Tensor | None:
    grads = [send(grad, device) for grad in column if grad is not None]
    if not all(grad.is_sparse for grad in grads):
        grads = [grad.to_dense() if grad.is_sparse else grad for grad in grads]
    total = None
    for grad in grads:
        total = grad if total is None else torch.add(total, grad)
    return total


def _home(bucket: Sequence[Tensor], devices: Sequence[torch.device]) -> int | None:
    """Give the first slot on the bucket's own device."""
    device = bucket[0].device
    return devices.index(device) if device in devices else None


def _without(devices: Sequence[torch.device], home: int | None) -> list[torch.device]:
    return [device for slot, device in enumerate(devices) if slot != home]


def _starts(flat: Sequence[object], bucket: Sequence[object]) -> range:
    return range(0, len(flat), len(bucket))
