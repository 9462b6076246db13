"""Stand-ins for the broadcast of one tensor."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ._devices import accelerator_name, device, format_sizes, is_on_accelerator, primitive


@primitive
def broadcast(tensor: Tensor, devices: Sequence[int]) -> list[Tensor]:
    """Stand in for ``torch._C._broadcast``.

    Returns:
        One tensor for each device. On the device of ``tensor`` it is the object ``tensor``; on
        other devices a row-major copy, made by a differentiable ``copy_``.

    Raises:
        RuntimeError: an ordinal is negative.
    """
    outputs = [_output(tensor, device(ordinal)) for ordinal in devices]
    _copy_to_all(tensor, [output for output in outputs if output is not tensor])
    return outputs


@primitive
def broadcast_out(tensor: Tensor, outs: Sequence[Tensor]) -> list[Tensor]:
    """Stand in for ``torch._C._broadcast_out``.

    Returns:
        The tensors of ``outs`` in a new list, overwritten with ``tensor``. They keep their dtypes
        and strides.

    Raises:
        RuntimeError: an output is not on the accelerator, or has another shape than ``tensor``.
            No output is written.
    """
    for index, out in enumerate(outs):
        _check_out(tensor, index, out)
    _copy_to_all(tensor, outs)
    return list(outs)


def _output(tensor: Tensor, target: torch.device) -> Tensor:
    if tensor.device == target:
        return tensor
    # The real primitive, too, makes row-major copies of any memory format.
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
