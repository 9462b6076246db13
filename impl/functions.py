"""The functions of ``comm`` as autograd Functions.

Callers use the method ``apply`` of a Function. Each Function can be differentiated twice. Device
arguments are those of ``comm``. None, or an accelerator without index, is the current device.

Letters used in this file: ``N`` is the size of a tensor along ``dim``, ``k`` the number of
devices, ``n`` the number of tensors per device.
"""

import warnings
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import Function

from ._arguments import argument, as_int, as_list, as_tensors, check_tensor
from ._bucket_copies import attached_copies
from ._comm_checks import as_chunk_sizes, check_gather_inputs
from ._copies import has_own_operators, to_device
from ._devices import (
    CPU,
    DeviceLike,
    accelerator_type,
    as_device_or_current,
    as_devices,
    as_target,
    check_device_type,
    is_cpu,
    is_on_cpu,
)
from ._move_chunks import SplitTensor, move_from_cpu
from ._split_and_cat import cat_on_device, split_into_views
from ._streams import (
    current_stream_by_device,
    save_streams,
    side_stream,
    wait_for_grad,
    with_saved_streams,
)
from ._torch_private import exclude_from_compilation
from .comm import broadcast_coalesced, reduce_add_coalesced

__all__ = ["Broadcast", "Gather", "ReduceAddCoalesced", "Scatter"]


class Broadcast(Function):
    """Copies of ``n`` tensors on ``k`` devices. Backward adds the gradients of all copies."""

    @staticmethod
    @exclude_from_compilation
    def forward(
        ctx: Any, target_gpus: Iterable[DeviceLike | None], *inputs: Tensor
    ) -> tuple[Tensor, ...]:
        """Copy ``inputs`` to each of ``target_gpus``, the first of which is their device.

        Returns:
            ``k * n`` tensors: the ``n`` tensors of the first device, then those of the next one.
            An output requires grad if its input does. The outputs on the first device are views
            of the inputs; the others are copies.

        Raises:
            AssertionError: An input is on the CPU.
            RuntimeError: An input is not on the first device.
            ValueError: ``target_gpus`` is empty.
            TypeError: An object is not a tensor, or names no device.
        """
        as_tensors("inputs", inputs)
        if any(map(is_on_cpu, inputs)):
            raise AssertionError("Broadcast function not implemented for CPU tensors")
        devices = _as_devices(target_gpus)
        if not inputs:
            return ()
        ctx.device, ctx.num_inputs = inputs[0].device, len(inputs)
        save_streams(ctx, devices)
        rows = broadcast_coalesced(inputs, devices)
        # Without `mark_non_differentiable`, all outputs would require grad if any input does.
        frozen = [index for index in range(len(inputs)) if not ctx.needs_input_grad[1 + index]]
        ctx.mark_non_differentiable(*(row[index] for row in rows for index in frozen))
        return tuple(chain.from_iterable(rows))

    @staticmethod
    @with_saved_streams
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Return the sum of the gradients of each input, on the device of the input."""
        # Use a Function instead of `comm.reduce_add_coalesced`, so that double backward works.
        sums = ReduceAddCoalesced.apply(ctx.device, ctx.num_inputs, *grads)  # type: ignore[no-untyped-call] # in torch
        return None, *sums


class ReduceAddCoalesced(Function):
    """Sums of ``k`` lists of ``n`` tensors. Each addend gets the gradient of its sum."""

    @staticmethod
    @exclude_from_compilation
    def forward(
        ctx: Any, destination: DeviceLike | None, num_inputs: int, *grads: Tensor
    ) -> tuple[Tensor, ...]:
        """Add the lists in ``grads`` index by index.

        ``grads`` are ``k * n`` tensors: the ``n`` tensors of one device, then those of the next
        one. ``num_inputs`` is ``n``. One of the devices is ``destination``, that of the sums.

        Returns:
            ``n`` new row-major tensors.

        Raises:
            AssertionError: A tensor is on the CPU.
            ValueError: The number of ``grads`` is not a multiple of ``n``, or two addends differ
                in size.
            RuntimeError: No list is on ``destination``.
            TypeError: An object is not a tensor, or ``destination`` is no device.
        """
        as_tensors("grads", grads)
        num_inputs = as_int("num_inputs", num_inputs)
        with argument("num_inputs"):
            starts = range(0, len(grads), num_inputs)
        ctx.devices = [grads[start].device for start in starts]
        rows = [grads[start : start + num_inputs] for start in starts]
        return reduce_add_coalesced(rows, destination)

    @staticmethod
    @exclude_from_compilation
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Copy the gradient of each sum to the devices of its addends."""
        # No saved streams are needed: all copies start on the device of this node.
        return None, None, *chain.from_iterable(attached_copies(grads, ctx.devices))


class Scatter(Function):
    """Chunks of one tensor on ``k`` devices. Backward concatenates the gradients of the chunks."""

    @staticmethod
    @exclude_from_compilation
    def forward(
        ctx: Any,
        target_gpus: Iterable[DeviceLike | None],
        chunk_sizes: Sequence[int] | None,
        dim: int,
        input: Tensor,  # noqa: A002 - the reference's name, which callers may spell out
    ) -> tuple[Tensor, ...]:
        """Split ``input`` along ``dim`` over ``target_gpus``, also of the CPU.

        Returns:
            The chunks of ``comm.scatter``. Copies from the CPU run on a side stream, and the
            current stream waits for them.

        Raises:
            IndexError: ``input`` has no dimension ``dim``.
            RuntimeError: ``target_gpus`` is empty; ``chunk_sizes`` does not have ``k`` entries,
                has a negative one, or does not sum to ``N``; ``input`` is 0-dim; an ordinal is
                negative.
            TypeError: ``input`` is not a tensor, ``dim`` is not an int, or an object names no
                device.
        """
        check_tensor("input", input)
        devices = _as_devices(target_gpus)
        ctx.dim, ctx.device = dim, input.device
        sizes = as_chunk_sizes(chunk_sizes, len(devices))
        chunks = split_into_views(input, len(devices), sizes, dim)
        used = devices[: len(chunks)]
        save_streams(ctx, [*used, input.device])
        # A class with its own operators may lack `record_stream`.
        if is_on_cpu(input) and not has_own_operators(type(input)):
            split = SplitTensor(input, sizes, dim, chunks)
            move_from_cpu([split], used, current_stream_by_device(used))
            return tuple(split.chunks)
        return tuple([to_device(*pair) for pair in zip(chunks, used, strict=True)])

    @staticmethod
    @with_saved_streams
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Concatenate the gradients of the chunks on the input's device."""
        if any(map(is_on_cpu, grads)) or any(map(has_own_operators, map(type, grads))):
            # Gather would leave CPU gradients on the CPU, raise an error for a mix of the CPU and
            # other devices, and return a plain tensor for tensor subclasses.
            grad = torch.cat([to_device(grad, ctx.device) for grad in grads], ctx.dim)
        else:
            grad = Gather.apply(ctx.device, ctx.dim, *grads)  # type: ignore[no-untyped-call] # in torch
        # Autograd runs this node on the stream of the first chunk's device, but the gradient is
        # on the device of the input.
        return None, None, None, wait_for_grad(grad)


class ScatteredChunks(Function):
    """The node of chunks that were split and copied before. It has the backward of Scatter."""

    @staticmethod
    @exclude_from_compilation
    def forward(
        ctx: Any,
        streams: Sequence[torch.Stream],
        dim: int,
        chunks: Sequence[Tensor],
        tensor: Tensor,
    ) -> tuple[Tensor, ...]:
        """Return ``chunks``, views and copies of ``tensor`` that were made without grad mode.

        ``streams`` are the streams that backward uses on the devices of the chunks and the tensor.
        """
        ctx.dim, ctx.device, ctx.streams = dim, tensor.device, streams
        return tuple(chunks)

    backward = staticmethod(Scatter.backward)


class Gather(Function):
    """The concatenation of tensors from ``k`` devices. Backward splits the gradient among them."""

    @staticmethod
    @exclude_from_compilation
    def forward(ctx: Any, target_device: DeviceLike | None, dim: int, *inputs: Tensor) -> Tensor:
        """Concatenate ``inputs`` along ``dim``.

        If all inputs are on the CPU, so is the result, else it is on ``target_device``. 0-dim
        tensors are treated as vectors of one element, with a warning, if ``dim`` is 0.

        Returns:
            A new tensor, as of ``comm.gather``. The host waits only for a result on the CPU.

        Raises:
            AssertionError: Some inputs are on the CPU and others are not.
            IndexError: An input has no dimension ``dim``.
            RuntimeError: ``inputs`` is empty, or shapes differ in another dimension than ``dim``.
            TypeError: An object is not a tensor, ``dim`` is not an int, or ``target_device`` is no
                device.
        """
        whole = gather_tensors(as_tensors("inputs", inputs), target_device, dim)
        ctx.dim, ctx.devices = dim, [tensor.device for tensor in inputs]
        ctx.complex = [tensor.is_complex() for tensor in inputs]
        ctx.scalars = inputs[0].dim() == 0
        ctx.sizes = [1 if ctx.scalars else tensor.size(dim) for tensor in inputs]
        return whole

    @staticmethod
    @exclude_from_compilation
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        """Split the gradient among the inputs' devices."""
        # No saved streams are needed: all copies start on the device of this node.
        chunks = Scatter.apply(ctx.devices, ctx.sizes, ctx.dim, grad_output)  # type: ignore[no-untyped-call] # in torch
        if ctx.scalars:
            chunks = [chunk[0] for chunk in chunks]
        # The gradient of a real input is real, even if another input is complex.
        grads = [
            chunk.real if chunk.is_complex() and not is_complex else chunk
            for chunk, is_complex in zip(chunks, ctx.complex, strict=True)
        ]
        return None, None, *grads


def gather_tensors(
    tensors: Sequence[Tensor], target_device: DeviceLike | None, dim: int
) -> Tensor:
    """Return what :class:`Gather` returns, without gradients."""
    dim = as_int("dim", dim)
    num_on_cpu = sum(map(is_on_cpu, tensors))
    if 0 < num_on_cpu < len(tensors):
        raise AssertionError("Gather function not implemented for CPU tensors")
    if tensors and dim == 0 and not any(map(Tensor.dim, tensors)):
        tensors = unsqueeze_scalars(tensors)
    for tensor in tensors:
        tensor.size(dim)  # Raise IndexError before other errors.
    target = CPU if num_on_cpu else as_target(target_device)
    dim = check_gather_inputs(tensors, dim, any_device=num_on_cpu > 0)
    return cat_on_device(tensors, dim, target)


def unsqueeze_scalars(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return vectors of tensors without dimensions, and warn."""
    warnings.warn(
        "Was asked to gather along dimension 0, but all input tensors were scalars; will "
        "instead unsqueeze and return a vector.",
        stacklevel=4,
    )
    return [tensor.view(1) for tensor in tensors]


def _as_devices(target_gpus: Iterable[DeviceLike | None]) -> list[torch.device]:
    return as_devices(as_list("target_gpus", target_gpus))


# mmcv, torch.distributed, and modified copies of DataParallel import this undocumented name. They
# copy from the CPU on this stream during the computation.
def _get_stream(device: torch.device) -> torch.Stream | None:
    """Return the stream of ``device`` for copies from the CPU; None if ``device`` has no streams.

    Raise AssertionError if ``device`` is of another type than the accelerator.
    """
    device_type = accelerator_type()
    if device_type is None or is_cpu(device):
        return None
    check_device_type(device, device_type)
    return side_stream(as_device_or_current(device))
