"""Stand-ins for ``_broadcast`` and ``_broadcast_out`` of ``torch._C``."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ._arguments import as_tensor, integer, list_of, primitive
from ._devices import accelerator_name, device_at, format_sizes, is_on_accelerator, sizes_of


@primitive(tensor=as_tensor, devices=list_of(integer()))
def broadcast(tensor: Tensor, devices: Sequence[int]) -> list[Tensor]:
    """Stand in for ``torch._C._broadcast``.

    Returns:
        One tensor for each device: the object ``tensor`` for the device of ``tensor``, and a
        row-major copy for any other device, made by a differentiable ``copy_``.

    Raises:
        RuntimeError: If an ordinal is negative.
    """
    outputs = [
        tensor if tensor.get_device() == ordinal >= 0 else _empty_copy(tensor, device_at(ordinal))
        for ordinal in devices
    ]
    _copy_to_all(tensor, [output for output in outputs if output is not tensor])
    return outputs


@primitive(tensor=as_tensor, out=list_of(as_tensor))
def broadcast_out(tensor: Tensor, out: Sequence[Tensor]) -> list[Tensor]:
    """Stand in for ``torch._C._broadcast_out``.

    Returns:
        The tensors of ``out`` in a new list, overwritten with ``tensor``. They keep their dtypes
        and strides.

    Raises:
        RuntimeError: If an output is not on the accelerator, or has another shape than ``tensor``.
            In both cases no output is written.
    """
    for index, each in enumerate(out):
        _check_out(tensor, index, each)
    _copy_to_all(tensor, out)
    return list(out)


def _empty_copy(tensor: Tensor, target: torch.device) -> Tensor:
    # Like the copies of the real primitive, the copy is row-major for any memory format.
    return torch.empty(sizes_of(tensor), dtype=tensor.dtype, layout=tensor.layout, device=target)


def _copy_to_all(tensor: Tensor, outs: Sequence[Tensor]) -> None:
    for out in outs:
        out.copy_(tensor, non_blocking=True)


def _check_out(tensor: Tensor, index: int, out: Tensor) -> None:
    if not is_on_accelerator(out):
        raise RuntimeError(
            f"Expected all output tensors to be {accelerator_name()} tensors, "
            f"but output tensor at index {index} has device '{out.device}'"
        )
    sizes, out_sizes = sizes_of(tensor), sizes_of(out)
    if out_sizes != sizes:
        raise RuntimeError(
            "Expected all output tensors to have same shape as the source tensor "
            f"{format_sizes(sizes)}, but output tensor at index {index} has shape "
            f"{format_sizes(out_sizes)}"
        )
