"""Stand-ins for ``_broadcast`` and ``_broadcast_out`` of ``torch._C``."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ._devices import accelerator_name, device_at, format_sizes, is_on_accelerator, primitive


@primitive
def broadcast(tensor: Tensor, devices: Sequence[int]) -> list[Tensor]:
    """Stand in for ``torch._C._broadcast``.

    Returns:
        One tensor for each device: the object ``tensor`` for the device of ``tensor``, and a
        row-major copy for any other device, made by a differentiable ``copy_``.

    Raises:
        RuntimeError: If an ordinal is negative.
    """
    outputs = [_output_on(device_at(ordinal), tensor) for ordinal in devices]
    _copy_to_all(tensor, [output for output in outputs if output is not tensor])
    return outputs


@primitive
def broadcast_out(tensor: Tensor, outs: Sequence[Tensor]) -> list[Tensor]:
    """Stand in for ``torch._C._broadcast_out``.

    Returns:
        The tensors of ``outs`` in a new list, overwritten with ``tensor``. They keep their dtypes
        and strides.

    Raises:
        RuntimeError: If an output is not on the accelerator, or has another shape than ``tensor``.
            In both cases no output is written.
    """
    for index, out in enumerate(outs):
        _check_out(tensor, index, out)
    _copy_to_all(tensor, outs)
    return list(outs)


def _output_on(target: torch.device, tensor: Tensor) -> Tensor:
    if tensor.device == target:
        return tensor
    # Like the copies of the real primitive, the copy is row-major for any memory format.
    return torch.empty(tensor.shape, dtype=tensor.dtype, layout=tensor.layout, device=target)


def _copy_to_all(tensor: Tensor, outs: Sequence[Tensor]) -> None:
    for out in outs:
        out.copy_(tensor, non_blocking=True)


def _check_out(tensor: Tensor, index: int, out: Tensor) -> None:
    if not is_on_accelerator(out):
        raise RuntimeError(
            f"Expected all output tensors to be {accelerator_name()} tensors, "
            f"but output tensor at index {index} has device '{out.device}'"
        )
    if out.shape != tensor.shape:
        raise RuntimeError(
            "Expected all output tensors to have same shape as the source tensor "
            f"{format_sizes(tensor.shape)}, but output tensor at index {index} has shape "
            f"{format_sizes(out.shape)}"
        )
