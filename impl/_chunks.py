"""The lengths of chunks, the split of several tensors into chunks, and checks of their shapes.

Weights are the public argument ``chunk_sizes``: sizes or proportions.
"""

import math
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from ._arguments import SPARSE_LAYOUTS, argument
from ._copies import PLAIN_CLASSES, split_into_views, to_device, without_grad, wrap_dim
from ._devices import accelerator_type, call_on_streams, is_on_accelerator, is_on_cpu, side_stream
from ._torch_private import use_plain_operators

# Computation of the lengths of chunks: the number of rows of each.
#
# Weights are the public argument ``chunk_sizes``: sizes or proportions.


#: A computed chunk length that exceeds an integer by at most this rounding error is rounded down.
_ROUNDING = 1e-9


def chunk_lengths(extent: int, count: int, weights: Sequence[float] | None = None) -> list[int]:
    """Return at most ``count`` chunk lengths that sum to ``extent``.

    ``weights`` are either chunk sizes that sum to ``extent``, or proportions: each length is
    rounded up until no rows are left. By default every length but the last is
    ``ceil(extent / count)``. The last devices have no length if no rows are left for them. A
    device with weight 0 before them has the length 0. If ``extent`` is 0, there are ``count``
    lengths of 0.
    """
    if extent == 0:
        return [0] * count
    if weights is None:
        length = math.ceil(extent / count)
        full, remainder = divmod(extent, length)
        return [length] * full + [remainder] * (remainder > 0)
    return _weighted_lengths(extent, list(weights))


def check_weights(weights: Sequence[float], count: int) -> None:
    """Raise ValueError unless ``weights`` are ``count`` finite numbers >= 0, and one is > 0."""
    if len(weights) != count:
        raise ValueError(f"{len(weights)} chunk sizes for {count} devices")
    if not all(0 <= weight < math.inf for weight in weights):
        raise ValueError(f"negative or infinite chunk size in {list(weights)}")
    if not any(weights):
        raise ValueError(f"every chunk size is 0 in {list(weights)}")


def _weighted_lengths(extent: int, weights: Sequence[float]) -> list[int]:
    lengths: list[int] = []
    rows = extent
    for index, weight in enumerate(weights):
        share = rows * weight / sum(weights[index:])
        lengths.append(min(rows, math.ceil(share - _ROUNDING)))
        rows -= lengths[-1]
        if rows == 0:
            break
    return lengths


# The split of several tensors into chunks, and the copies of chunks on their devices.


_NO_GUARD = nullcontext()
#: For each device that has streams: its current stream.
StreamByDevice = Mapping[torch.device, torch.Stream]


@dataclass(slots=True)
class SplitTensor:
    """A tensor to split along ``dim``, and its chunks after :func:`split_and_move`."""

    tensor: Tensor
    lengths: Sequence[int] | None  # None for the lengths of ``Tensor.chunk``.
    dim: int
    error_context: argument  # The block for work on the tensor, which names it in errors.
    chunks: Sequence[Tensor] = ()


@without_grad
def split_and_move(
    splits: Iterable[SplitTensor],
    devices: Sequence[torch.device],
    streams: StreamByDevice,
) -> None:
    """Split each tensor into one chunk for each of ``devices``, and move the chunks there.

    A chunk on the device of its tensor is a view. No chunk is attached to the graph of its tensor.
    ``streams`` has the current stream of each device that has streams.
    """
    # Split all tensors first: a tensor that cannot be split raises before any device has work.
    on_cpu: list[SplitTensor] = []
    elsewhere: list[SplitTensor] = []
    for split in splits:
        with split.error_context:
            split.chunks = split_into_views(split.tensor, len(devices), split.lengths, split.dim)
            (on_cpu if is_on_cpu(split.tensor) else elsewhere).append(split)
    for split in elsewhere:
        with split.error_context:
            source = split.tensor.device
            split.chunks = [
                chunk if device == source else to_device(chunk, device)
                for chunk, device in zip(split.chunks, devices, strict=False)
            ]
    if on_cpu:
        move_from_cpu(on_cpu, devices, streams)


def move_from_cpu(
    splits: Sequence[SplitTensor], devices: Sequence[torch.device], streams: StreamByDevice
) -> None:
    """Move the chunks of CPU tensors: chunk ``i`` of each tensor to ``devices[i]``.

    The copies run on side streams. ``streams``, the current streams, wait for the copies. A chunk
    whose device is the CPU stays there.
    """
    users: dict[torch.device, torch.Stream] = {}  # The streams that use the copies.
    sides: dict[torch.Stream, torch.Stream] = {}  # For each side stream: the stream of `users`.
    for device, current in streams.items():
        side = side_stream(device)
        if side is not None:
            users[device] = sides[side] = current
    # 1. Copy on the side streams. The copies start at once, even if the current streams have
    #    queued work.
    places = [(device, users.get(device)) for device in devices]
    call_on_streams(sides, _copy_chunks, splits, places)
    # 2. Make the current streams wait for the copies.
    for side, user in sides.items():
        user.wait_stream(side)


def _copy_chunks(
    splits: Sequence[SplitTensor], places: Sequence[tuple[torch.device, torch.Stream | None]]
) -> None:
    # This loop is written out, because the calls of small functions would take as long as copies.
    for split in splits:
        copies = []
        with split.error_context:
            for chunk, (device, user) in zip(split.chunks, places, strict=False):
                if user is None:
                    copy = to_device(chunk, device)
                else:
                    copy = chunk.to(device, non_blocking=True)
                    # Record that the current stream uses the copy. Otherwise the allocator could
                    # reuse the memory on the side stream too early.
                    # A subclass may refuse an operator that no caller uses.
                    with _NO_GUARD if type(copy) in PLAIN_CLASSES else use_plain_operators():
                        copy.record_stream(user)
                copies.append(copy)
        split.chunks = copies


# Checks of the arguments of ``comm``, with the error messages of torch.nn.parallel.


def check_gradient_layout(tensor: Tensor, name: str) -> None:
    """Raise NotImplementedError if no gradients can flow back from copies of ``tensor``."""
    layout = tensor.layout
    if layout in SPARSE_LAYOUTS and tensor.requires_grad and torch.is_grad_enabled():
        raise NotImplementedError(
            f"{name} requires grad and has the layout {layout}, for which PyTorch passes no "
            "gradients between devices: detach it, or make it dense"
        )


def check_broadcast_outputs(tensor: Tensor, outputs: Sequence[Tensor]) -> None:
    """Check that all outputs are on the accelerator and have the shape of ``tensor``."""
    for index, output in _enumerate_on_accelerator(outputs, "output"):
        if output.shape != tensor.shape:
            raise RuntimeError(
                "Expected all output tensors to have same shape as the source tensor "
                f"{list(tensor.shape)}, but output tensor at index {index} has shape "
                f"{list(output.shape)}"
            )


def check_scatter_outputs(tensor: Tensor, outputs: Sequence[Tensor], dim: int) -> int:
    """Check that chunks of ``tensor`` fit the outputs. Return ``dim`` as a non-negative number."""
    if not outputs:
        raise RuntimeError("Expected at least one output tensor to scatter to")
    dim = wrap_dim(dim, tensor.dim())
    total = 0
    for index, output in _enumerate_on_accelerator(outputs, "output"):
        if _sizes_except(output, dim) != _sizes_except(tensor, dim):
            raise RuntimeError(
                f"Output tensor at index {index} has incorrect shape: {list(output.shape)}. "
                f"Expected same shape except for scatter dim {dim} as the source tensor: "
                f"{list(tensor.shape)}"
            )
        _check_dimension(output, index, "scatter to")
        total += output.size(dim)
    if total != tensor.size(dim):
        raise RuntimeError(
            f"Total size for output tensors along scatter dim {dim} does not match the source "
            f"tensor size at dim {dim}. Expected {tensor.size(dim)}, but got total size {total}"
        )
    return dim


def check_gather_inputs(tensors: Sequence[Tensor], dim: int, *, any_device: bool = False) -> int:
    """Check that inputs can be concatenated. Return ``dim`` as a non-negative number.

    Unless ``any_device`` is true, all inputs must be on the accelerator.
    """
    if not tensors:
        raise RuntimeError("Expected at least one tensor to gather from")
    dims = tensors[0].dim()
    dim = wrap_dim(dim, dims)
    on_accelerator = _enumerate_on_accelerator(tensors, "input")
    for index, tensor in enumerate(tensors) if any_device else on_accelerator:
        if tensor.dim() != dims:
            raise RuntimeError(
                "Expected all input tensors to have the same number of dimensions, but tensor at "
                f"index {index} has {tensor.dim()} dimensions, (expected {dims})"
            )
        _check_slice_shape(tensors, index, dim)
    return dim


def _check_slice_shape(tensors: Sequence[Tensor], index: int, dim: int) -> None:
    """Check that ``tensors[index]`` has the shape of the first tensor, except along ``dim``."""
    tensor = tensors[index]
    _check_dimension(tensor, index, "gather")
    expected = list(tensors[0].shape)
    expected[dim] = tensor.size(dim)
    if list(tensor.shape) != expected:
        raise RuntimeError(
            f"Input tensor at index {index} has invalid shape {list(tensor.shape)}, "
            f"but expected {expected}"
        )


def check_gather_output(out: Tensor, shape: Sequence[int]) -> None:
    """Check that ``out`` has the shape of the concatenated inputs."""
    if list(out.shape) != list(shape):
        raise RuntimeError(
            f"Expected out tensor to have shape {list(shape)}, but got {list(out.shape)}"
        )


def check_chunk_count(chunk_sizes: Sequence[int] | None, count: int) -> None:
    """Check that the number of devices, ``count``, is positive and is the number of chunk sizes.

    ``chunk_sizes`` may be None.
    """
    if count == 0:
        raise RuntimeError("Expected at least one device to scatter to")
    if chunk_sizes is not None and len(chunk_sizes) != count:
        raise RuntimeError(
            "Expected devices and chunk_sizes to be of same length, but got len(devices) = "
            f"{count} and len(chunk_sizes) = {len(chunk_sizes)}"
        )


def as_buffer_size(size: Any) -> int:
    """Return ``size`` as an int. Raise TypeError if it is not an integer from 0."""
    kind = type(size)
    with argument("buffer_size"):
        if not hasattr(kind, "__index__"):
            raise TypeError(f"buffer_size must be an integer from 0, not {kind.__name__}")
        number = operator.index(size)
        if number < 0:
            raise TypeError(f"buffer_size must be an integer from 0, not {number}")
        return number


def check_sum_buffer_size(size: object) -> None:
    """Raise TypeError if ``size`` is not a number. torch.nn.parallel takes any number for sums."""
    if not issubclass(type(size), Real):
        raise TypeError(f"buffer_size must be a number of bytes, not {type(size).__name__}")


def _enumerate_on_accelerator(
    tensors: Sequence[Tensor], role: str
) -> Iterator[tuple[int, Tensor]]:
    """Check that each tensor is on an accelerator, then yield its index and the tensor.

    This function is a generator, so that callers finish the checks of one tensor before the next
    tensor is checked, as in torch.nn.parallel.
    """
    for index, tensor in enumerate(tensors):
        if not is_on_accelerator(tensor):
            name = "output tensor" if role == "output" else "tensor"
            kind = (accelerator_type() or "accelerator").upper()
            raise RuntimeError(
                f"Expected all {role} tensors to be {kind} tensors, "
                f"but {name} at index {index} has device '{tensor.device}'"
            )
        yield index, tensor


def _sizes_except(tensor: Tensor, dim: int) -> tuple[int, list[int]]:
    """Return the number of dimensions of ``tensor``, and its sizes except along ``dim``."""
    sizes = list(tensor.shape)
    return tensor.dim(), sizes[:dim] + sizes[dim + 1 :]


def _check_dimension(tensor: Tensor, index: int, purpose: str) -> None:
    if tensor.dim() == 0:
        raise ValueError(
            f"Expected tensors of at least one dimension to {purpose}, "
            f"but tensor at index {index} has none"
        )
