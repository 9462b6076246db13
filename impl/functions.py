"""Moving tensors between devices with gradients: the movements of comm as autograd Functions.

Each is applied by its ``apply`` and can be differentiated twice. Devices are written as for
comm; an accelerator without index, or None, means the current device.

Letters used in this file: ``N`` is the extent of a tensor along ``dim``, ``k`` the number of
devices, ``n`` the number of tensors per device.
"""

import warnings
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import Function

from ._comm import (
    attached_copies,
    cat_on_device,
    check_chunk_count,
    check_gather_inputs,
    is_wrapper,
    split_into_views,
    to_device,
)
from ._compat import exclude_from_compilation
from ._device import (
    CPU,
    DeviceLike,
    as_device_or_current,
    as_target,
    current_stream,
    has_streams,
    is_on_cpu,
    save_streams,
    side_stream,
    use_stream,
    wait_for_grad,
    with_saved_streams,
)
from ._legacy_names import _get_stream as _get_stream
from .comm import broadcast_coalesced, reduce_add_coalesced

__all__ = ["Broadcast", "Gather", "ReduceAddCoalesced", "Scatter"]


class Broadcast(Function):
    """Copies of ``n`` tensors on ``k`` devices; its gradient is their sum."""

    @staticmethod
    @exclude_from_compilation
    def forward(
        ctx: Any, target_gpus: Iterable[DeviceLike | None], *inputs: Tensor
    ) -> tuple[Tensor, ...]:
        """Copy ``inputs`` to each of ``target_gpus``.

        Args:
            ctx: Autograd's notes.
            target_gpus: ``k`` devices of the accelerator, first that of ``inputs``.
            inputs: ``n`` tensors of the accelerator.

        Returns:
            ``k * n`` tensors, those of one device together. An output requires grad where its
            input does. Those of the first device are views of the inputs, the others copies.

        Raises:
            AssertionError: An input is on the CPU.
            RuntimeError: An input is not on the first device.
            ValueError: There is no device.
        """
        if any(map(is_on_cpu, inputs)):
            raise AssertionError("Broadcast function not implemented for CPU tensors")
        devices = [as_device_or_current(device) for device in target_gpus]
        if not inputs:
            return ()
        ctx.device, ctx.num_inputs = inputs[0].device, len(inputs)
        save_streams(ctx, devices)
        rows = broadcast_coalesced(inputs, devices)
        # Where one input requires grad, autograd has every output require it.
        frozen = [index for index in range(len(inputs)) if not ctx.needs_input_grad[1 + index]]
        ctx.mark_non_differentiable(*(row[index] for row in rows for index in frozen))
        return tuple(chain.from_iterable(rows))

    @staticmethod
    @with_saved_streams
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Add the gradients of each input on its device."""
        # A Function and not comm's function, so that this backward can be differentiated again.
        sums = ReduceAddCoalesced.apply(ctx.device, ctx.num_inputs, *grads)  # type: ignore[no-untyped-call] # in torch
        return None, *sums


class ReduceAddCoalesced(Function):
    """Sums of ``k`` lists of ``n`` tensors; its gradient goes to every addend."""

    @staticmethod
    @exclude_from_compilation
    def forward(
        ctx: Any, destination: DeviceLike | None, num_inputs: int, *grads: Tensor
    ) -> tuple[Tensor, ...]:
        """Add ``grads`` index by index.

        Args:
            ctx: Autograd's notes.
            destination: Where the sums are wanted, the device of one list.
            num_inputs: ``n``.
            grads: ``k * n`` tensors, those of one device together.

        Returns:
            ``n`` sums, row-major and new.

        Raises:
            AssertionError: A tensor is on the CPU.
            ValueError: ``grads`` are no whole number of lists, or two addends differ in size.
            RuntimeError: No list is on ``destination``.
        """
        starts = range(0, len(grads), num_inputs)
        ctx.devices = [grads[start].device for start in starts]
        return reduce_add_coalesced(
            [grads[start : start + num_inputs] for start in starts], destination
        )

    @staticmethod
    @exclude_from_compilation
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Copy the gradient of each sum to the devices of its addends."""
        # Copies away from the node's own device need no saved streams.
        return None, None, *chain.from_iterable(attached_copies(grads, ctx.devices))


class Scatter(Function):
    """Chunks of one tensor on ``k`` devices; its gradient joins theirs."""

    @staticmethod
    @exclude_from_compilation
    def forward(
        ctx: Any,
        target_gpus: Iterable[DeviceLike | None],
        chunk_sizes: Sequence[int] | None,
        dim: int,
        input: Tensor,  # noqa: A002 - the reference's name, which callers may spell out
    ) -> tuple[Tensor, ...]:
        """Split ``input`` along ``dim`` over ``target_gpus``.

        Args:
            ctx: Autograd's notes.
            target_gpus: ``k`` devices, of the accelerator or the CPU.
            chunk_sizes: ``k`` non-negative extents that sum to ``N``; None for equal ones but
                for the last, so that there may be fewer chunks than devices.
            dim: The dimension to split. Negative values count from the last one.
            input: Shape ``(*, N, *)`` with ``N`` at ``dim``, dense, on any device.

        Returns:
            The chunks. One whose device holds ``input`` already is a view of it; another is a
            copy that keeps dense strides. A chunk of a CPU tensor is copied beside the current
            stream, which waits for it.

        Raises:
            IndexError: ``input`` has no dimension ``dim``.
            RuntimeError: There is no device; ``chunk_sizes`` has not ``k`` entries, has a
                negative one, or does not sum to ``N``; ``input`` is 0-dim; an ordinal is
                negative.
        """
        devices = [as_device_or_current(device) for device in target_gpus]
        ctx.dim, ctx.device = dim, input.device
        save_streams(ctx, [*devices, input.device])
        check_chunk_count(chunk_sizes, len(devices))
        chunks = split_into_views(input, len(devices), chunk_sizes, dim)
        return tuple(_copy_on_side_stream(*pair) for pair in zip(chunks, devices, strict=False))

    @staticmethod
    @with_saved_streams
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Join the gradients of the chunks on the input's device."""
        if any(map(is_on_cpu, grads)) or any(map(is_wrapper, grads)):
            # Gather leaves on the CPU what is there, refuses a mix, and fills a plain tensor.
            grad = torch.cat([to_device(grad, ctx.device) for grad in grads], ctx.dim)
        else:
            grad = Gather.apply(ctx.device, ctx.dim, *grads)  # type: ignore[no-untyped-call] # in torch
        # Autograd runs this node on the first chunk's device; the gradient is on the input's.
        return None, None, None, wait_for_grad(grad)


class Gather(Function):
    """One tensor joined from those of ``k`` devices; its gradient is split among them."""

    @staticmethod
    @exclude_from_compilation
    def forward(ctx: Any, target_device: DeviceLike | None, dim: int, *inputs: Tensor) -> Tensor:
        """Join ``inputs`` along ``dim``.

        Args:
            ctx: Autograd's notes.
            target_device: Where the result is wanted, of the accelerator or the CPU (-1, too,
                which is deprecated). Inputs that are all on the CPU are joined there.
            dim: The dimension to join along. Negative values count from the last one.
            inputs: ``k`` dense tensors, equal in shape but for ``dim``. Where all are 0-dim and
                ``dim`` is 0 they are taken for vectors of one element, with a warning.

        Returns:
            A new tensor with the first one's dtype, but complex if any input is; channels-last
            where all inputs are, else row-major. The host waits for it only on the CPU.

        Raises:
            AssertionError: Some inputs, but not all, are on the CPU.
            IndexError: An input has no dimension ``dim``.
            RuntimeError: There is no input, or shapes differ elsewhere than at ``dim``.
        """
        on_cpu = [*map(is_on_cpu, inputs)]
        if any(on_cpu) and not all(on_cpu):
            raise AssertionError("Gather function not implemented for CPU tensors")
        ctx.scalars = dim == 0 and all(tensor.dim() == 0 for tensor in inputs)
        ctx.dim, ctx.devices = dim, [tensor.device for tensor in inputs]
        ctx.complex = [tensor.is_complex() for tensor in inputs]
        if ctx.scalars:
            _warn_of_scalars()
            inputs = tuple(tensor.view(1) for tensor in inputs)
        ctx.sizes = [tensor.size(dim) for tensor in inputs]
        target = CPU if any(on_cpu) else as_target(target_device)
        dim = check_gather_inputs(inputs, dim, any_device=all(on_cpu))
        return cat_on_device(inputs, dim, target)

    @staticmethod
    @exclude_from_compilation
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Split the gradient among the inputs' devices."""
        # Needs no kept streams either: it only copies away from the node's own device.
        chunks = Scatter.apply(ctx.devices, ctx.sizes, ctx.dim, grad)  # type: ignore[no-untyped-call] # in torch
        if ctx.scalars:
            chunks = [chunk[0] for chunk in chunks]
        # A real input that complex ones have made complex has a real gradient.
        return None, None, *map(_of_kind, chunks, ctx.complex)


def _copy_on_side_stream(chunk: Tensor, device: torch.device) -> Tensor:
    if not is_on_cpu(chunk) or not has_streams(device) or is_wrapper(chunk):
        # A wrapper need not have `record_stream`.
        return to_device(chunk, device)
    # 1. The copy runs beside the current stream and does not wait for the work queued there.
    beside, current = side_stream(device), current_stream(device)
    with use_stream(beside):
        sent = to_device(chunk, device)
    # 2. The current stream waits for the copy.
    current.wait_stream(beside)
    # 3. The memory belongs to the side stream, which must not reuse it before the current one
    #    is done with it.
    sent.record_stream(current)
    return sent


def _of_kind(grad: Tensor, is_complex: bool) -> Tensor:
    return grad.real if grad.is_complex() and not is_complex else grad


def _warn_of_scalars() -> None:
    warnings.warn(
        "Was asked to gather along dimension 0, but all input tensors were scalars; will instead "
        "unsqueeze and return a vector.",
        stacklevel=3,
    )
