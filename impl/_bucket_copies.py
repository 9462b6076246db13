"""Copies of many tensors on several devices, in buckets.

    forward:    tensors ──► CopiedBucket ──► views on the device of the tensors
                                         ──► copies on each of the other devices
    backward:   sums    ◄── CopiedBucket ◄── gradients of the views and copies

Each bucket has its own autograd node. Backward therefore sums and frees the gradients of a bucket
as soon as all replicas have computed them.

``k`` is the number of devices, ``n`` the number of tensors.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial, reduce
from itertools import chain
from typing import Any, TypeGuard, TypeVar

import torch
from torch import Tensor
from torch.autograd.function import Function

from ._buckets import REPLICA_BUFFER_SIZE, copy_bucket, plan_buckets, sorted_by_index
from ._copies import (
    PLAIN_CLASSES,
    has_own_operators,
    move_by_own_operators,
    to_device,
    with_class_and_attributes,
)
from ._settings import without_grad
from ._streams import save_streams, with_saved_streams
from ._sums import add_buckets
from ._torch_private import (
    allow_inplace_changes,
    call_with_inference_mode,
    exclude_from_compilation,
    run_first_in_backward,
    track_original_views,
    use_plain_operators,
)

#: For each device, the list of its tensors.
_ByDevice = list[list[Tensor]]
_Member = TypeVar("_Member")


def attached_copies(
    tensors: Sequence[Tensor],
    devices: Sequence[torch.device],
    *,
    buffer_size: int = REPLICA_BUFFER_SIZE,
) -> _ByDevice:
    """Copy ``tensors`` to each of ``devices``. Gradients flow back to ``tensors``.

    Args:
        tensors: ``n`` tensors on any devices, dense or sparse COO.
        devices: ``k`` targets in output order. The same device may appear twice.
        buffer_size: The largest number of bytes of a bucket; a larger tensor is a bucket of its
            own. Small tensors of a bucket are copied in one transfer.

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
) -> _ByDevice:
    """Copy ``tensors`` as :func:`attached_copies` does, without history.

    The first list for the device of a source holds the source itself. All other copies do not
    require grad.
    """
    return _copy_bucket_by_bucket(
        _copy_detached, tensors, devices, plan_buckets(tensors, buffer_size)
    )


def is_attached_copy(tensor: Tensor) -> bool:
    """Return whether a bucket of :func:`attached_copies` has ``tensor`` as it was returned."""
    node = tensor.grad_fn
    if node is not None and node.name() == "AliasBackward0":  # See `_single_output_view`.
        node = node.next_functions[0][0]
    return node is not None and node.name() == f"{CopiedBucket.__name__}Backward"


def _copy_bucket_by_bucket(
    copy_to: Callable[[Sequence[Tensor], Sequence[torch.device]], _ByDevice],
    tensors: Sequence[Tensor],
    devices: Sequence[torch.device],
    plan: Sequence[Sequence[int]],
) -> _ByDevice:
    """Copy the buckets of ``plan``. Return for each device the copies of ``tensors``."""
    by_device: _ByDevice = [[] for _ in devices]
    for indices in plan:
        bucket = [tensors[index] for index in indices]
        classes = {*map(type, bucket)}
        is_plain = classes <= PLAIN_CLASSES or any(map(has_own_operators, classes))
        # A subclass may refuse an operator that the copies need, and the bucket of a tensor of a
        # subclass would give its class to all tensors.
        with nullcontext() if is_plain else use_plain_operators():
            copied = copy_to(bucket, devices)
        for copies, members in zip(by_device, copied, strict=True):
            copies += members
    by_device = sorted_by_index(by_device, [index for indices in plan for index in indices])
    for index, tensor in enumerate(tensors):
        if type(tensor) not in PLAIN_CLASSES or tensor.__dict__:
            for copies in by_device:
                copies[index] = with_class_and_attributes(copies[index], tensor)
    return by_device


def _copy_detached(bucket: Sequence[Tensor], devices: Sequence[torch.device]) -> _ByDevice:
    if has_own_operators(type(bucket[0])):
        return without_grad(_copy_by_own_operators)(bucket[0], devices)
    own_index, other_devices = _separate_own_device(bucket, devices)
    by_device = copy_bucket(bucket, other_devices)
    if own_index is not None:
        by_device.insert(own_index, list(bucket))
    return by_device


def _copy_attached(bucket: Sequence[Tensor], devices: Sequence[torch.device]) -> _ByDevice:
    if has_own_operators(type(bucket[0])):
        tensor = bucket[0]
        records = tensor.requires_grad and _records_gradients()
        # The first copy is another object: if it were a Parameter, the replica would have it in
        # `parameters()`.
        first = tensor.view_as(tensor) if records else tensor.detach()
        if first.grad_fn is not None:
            # The gradient of a view has the memory of the view's gradient, which may be that of
            # another parameter, too. Both would keep it, and add later gradients to it twice.
            # A hook of the tensor would be part of its pickled state.
            first.grad_fn.register_prehook(_clone_gradients)
        return _copy_by_own_operators(first, devices)
    own_index, other_devices = _separate_own_device(bucket, devices)
    if bucket[0].requires_grad and _records_gradients():
        # If the memory of a view is changed in place, even under `no_grad`, autograd replaces the
        # view's node. By default the new node is a strided view, which raises an error for sparse
        # gradients. A node that repeats the original view operation accepts sparse gradients.
        by_device = track_original_views(
            lambda: _copy_by_autograd_node(bucket, other_devices, with_views=own_index is not None)
        )
    else:
        # Use `detach`, not a view: a view of a leaf that requires grad requires grad, even under
        # `no_grad`.
        by_device = [[tensor.detach() for tensor in bucket]] if own_index is not None else []
        by_device += copy_bucket(bucket, other_devices)
    if own_index is not None:
        # Move the list for the sources' device from the front to its index in `devices`.
        by_device.insert(own_index, by_device.pop(0))
    return by_device


def _clone_gradients(grads: Sequence[Tensor | None]) -> tuple[Tensor | None, ...]:
    return tuple([None if grad is None else grad.clone() for grad in grads])


def _records_gradients() -> bool:
    # In inference mode autograd records nothing, even if grad mode is on.
    return torch.is_grad_enabled() and not torch.is_inference_mode_enabled()


def _copy_by_own_operators(tensor: Tensor, devices: Sequence[torch.device]) -> _ByDevice:
    """Copy a tensor by the operators of its class. The first list for its device holds itself."""
    own_index, _ = _separate_own_device([tensor], devices)
    by_device: _ByDevice = []
    for index, device in enumerate(devices):
        by_device.append(
            [tensor if index == own_index else move_by_own_operators(tensor, device, copy=True)]
        )
        if tensor.requires_grad and index < len(devices) - 1:
            # Autograd adds the gradients of a tensor in the order in which they are ready. Each
            # view gets two gradients only, whose sum does not depend on their order.
            tensor = tensor.view_as(tensor)
    return by_device


def _copy_by_autograd_node(
    bucket: Sequence[Tensor], other_devices: Sequence[torch.device], *, with_views: bool
) -> _ByDevice:
    """Return the outputs of one :class:`CopiedBucket` node: for each device a list of tensors."""
    outputs = CopiedBucket.apply(other_devices, with_views, *bucket)  # type: ignore[no-untyped-call] # in torch
    by_device: _ByDevice = _divide(outputs, len(bucket))
    if with_views:
        by_device[0] = list(map(_single_output_view, by_device[0]))
    # Backward runs the newest ready node first. This node is older than all nodes of the
    # replicas. By default it would run after the backward of the whole first replica, and all
    # gradients would be kept until then. With the highest priority it runs as soon as it is ready.
    run_first_in_backward(outputs[-1].grad_fn)
    return by_device


def _single_output_view(output: Tensor) -> Tensor:
    """Return a view of ``output``, one of several of a node, that may be changed in place.

    The view has a node with one output, which autograd can replace (pytorch/pytorch#37246).
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
        return None, None, *_sum_gradients(_divide(grads, ctx.bucket_size), ctx.device)


def _sum_gradients(
    by_device: Sequence[Sequence[Tensor | None]], device: torch.device
) -> list[Tensor | None]:
    """Return the sums of the gradients in ``by_device``, which has a list for each device."""
    columns = list(zip(*by_device, strict=True))
    # One operation adds the gradients of all tensors whose gradients are dense on all devices.
    # Sums with sparse or missing gradients are computed tensor by tensor.
    dense = {index: column for index, column in enumerate(columns) if _is_dense(column)}
    sums: dict[int, Tensor | None] = {}
    if len(by_device) > 1 and dense:
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


def _separate_own_device(
    bucket: Sequence[Tensor], devices: Sequence[torch.device]
) -> tuple[int | None, list[torch.device]]:
    """Return the first index of the bucket's device, or None, and the other devices."""
    device = bucket[0].device
    own_index = devices.index(device) if device in devices else None
    return own_index, [other for index, other in enumerate(devices) if index != own_index]


def _divide(flat: Sequence[_Member], size: int) -> list[list[_Member]]:
    return [list(flat[start : start + size]) for start in range(0, len(flat), size)]
