"""The functions of comm. They copy and add one tensor at a time, without coalescing."""

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

from spec_tests.oracle._devices import as_device, leave
from spec_tests.oracle.chunk_sizes import even_chunks

#: A device argument; None for the current device.
DeviceLike = torch.device | int | str | None
CPU_ORDINAL_WARNING = (
    "Using -1 to represent CPU tensor is deprecated. Please use a device object or string "
    'instead, e.g., "cpu".'
)


def scatter(
    tensor: Tensor,
    devices: Sequence[DeviceLike] | None = None,
    chunk_sizes: Sequence[int] | None = None,
    dim: int = 0,
    streams: object = None,
    *,
    out: Sequence[Tensor] | None = None,
) -> tuple[Tensor, ...]:
    """Return a chunk of ``tensor`` for each device, or copy the chunks into ``out``."""
    if out is not None:
        chunks = split(tensor, [output.shape[dim] for output in out], dim)
        written = zip(out, chunks, strict=True)
        return tuple(output.copy_(leave(chunk, output.device)) for output, chunk in written)
    devices = list(devices or [])
    if chunk_sizes is None:
        chunk_sizes = even_chunks(tensor.size(dim), len(devices))
    # zip drops devices without a chunk, even if these devices do not exist.
    pairs = zip(split(tensor, chunk_sizes, dim), map(as_device, devices), strict=False)
    return tuple(leave(chunk, device).to(device) for chunk, device in pairs)


def split(tensor: Tensor, sizes: Sequence[int], dim: int) -> list[Tensor]:
    """Return consecutive slices of ``tensor`` along ``dim`` with the lengths ``sizes``."""
    starts = [sum(sizes[:index]) for index in range(len(sizes))]
    return [tensor.narrow(dim, start, size) for start, size in zip(starts, sizes, strict=True)]


def broadcast(
    tensor: Tensor,
    devices: Sequence[DeviceLike] | None = None,
    *,
    out: Sequence[Tensor] | None = None,
) -> list[Tensor]:
    """Copy ``tensor`` into each tensor of ``out``, or return a copy for each device.

    New copies are row-major. For the device of ``tensor``, the result is ``tensor`` itself.
    """
    if out is not None:
        return [output.copy_(leave(tensor, output.device)) for output in out]
    targets = map(as_device, devices or [])
    return [tensor if device == tensor.device else copy_to(tensor, device) for device in targets]


def copy_to(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a copy on ``device``, row-major if ``tensor`` is dense."""
    if tensor.layout is not torch.strided:
        return leave(tensor, device).to(device, copy=True)
    return leave(tensor, device).to(device, copy=True, memory_format=torch.contiguous_format)


def broadcast_coalesced(
    tensors: Sequence[Tensor], devices: Sequence[DeviceLike], buffer_size: int = 10 * 2**20
) -> list[list[Tensor]]:
    """Return the tensors themselves for the first device and detached copies for the others."""
    others = [as_device(device) for device in devices[1:]]
    return [
        list(tensors),
        *[[copy_to(each.detach(), device) for each in tensors] for device in others],
    ]


def reduce_add(inputs: Sequence[Tensor], destination: DeviceLike = None) -> Tensor:
    """Return the sum: the last input on the destination, plus the other inputs in order."""
    device = as_device(destination)
    root = max(index for index, each in enumerate(inputs) if each.device == device)
    others = [leave(each, device).to(device) for index, each in enumerate(inputs) if index != root]
    if not others:
        return inputs[root]
    total = inputs[root] + others[0]
    for each in others[1:]:
        total += each
    return total


def reduce_add_coalesced(
    inputs: Sequence[Sequence[Tensor]],
    destination: DeviceLike = None,
    buffer_size: int = 10 * 2**20,
) -> tuple[Tensor, ...]:
    """Return, for each position in the lists, the sum of the tensors: row-major and detached."""
    columns = [[each.detach() for each in column] for column in zip(*inputs, strict=True)]
    return tuple(reduce_add(column, destination).contiguous() for column in columns)


def gather(
    tensors: Sequence[Tensor],
    dim: int = 0,
    destination: DeviceLike = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Return the joined chunks in the dtype of the first chunk, or copy them into ``out``."""
    if out is not None:
        return out.copy_(concatenate(tensors, dim, out.device, out.dtype))
    return concatenate(tensors, dim, destination_device(destination), tensors[0].dtype)


def destination_device(destination: DeviceLike) -> torch.device:
    """Return the device of ``destination``. Warn if it is -1, which is deprecated."""
    if destination == -1:
        warnings.warn(CPU_ORDINAL_WARNING, FutureWarning, stacklevel=2)
    return as_device(destination)


def concatenate(
    tensors: Sequence[Tensor], dim: int, device: torch.device, dtype: torch.dtype
) -> Tensor:
    """Return the joined chunks: channels-last if all chunks are channels-last, else row-major."""
    chunks = [leave(each, device).to(device, dtype) for each in tensors]
    return torch.cat(chunks, dim).contiguous(memory_format=_memory_format(tensors))


def _memory_format(tensors: Sequence[Tensor]) -> torch.memory_format:
    for memory_format, dims in ((torch.channels_last, 4), (torch.channels_last_3d, 5)):
        if all(each.dim() == dims and _has_only(memory_format, each) for each in tensors):
            return memory_format
    return torch.contiguous_format


def _has_only(memory_format: torch.memory_format, tensor: Tensor) -> bool:
    # A tensor with extents of 1 may have several formats, so compare the strides.
    strides = torch.empty(tensor.shape, memory_format=memory_format, device="meta").stride()
    return tensor.stride() == strides and not tensor.is_contiguous()
