"""What callers of comm may pass: the refusals, with the texts of the reference.

``N`` is the extent of a tensor along ``dim``.
"""

from collections.abc import Iterator, Sequence

from torch import Tensor

from .._device import accelerator_type, is_of_type
from .split_cat import wrap_dim

__all__ = [
    "check_broadcast_outputs",
    "check_chunk_count",
    "check_gather_inputs",
    "check_gather_output",
    "check_scatter_outputs",
]


def check_broadcast_outputs(tensor: Tensor, outputs: Sequence[Tensor]) -> None:
    """Refuse outputs off the accelerator or of another shape than ``tensor``."""
    for index, output in _accelerated(outputs, "output"):
        if output.shape != tensor.shape:
            raise RuntimeError(
                "Expected all output tensors to have same shape as the source tensor "
                f"{list(tensor.shape)}, but output tensor at index {index} has shape "
                f"{list(output.shape)}"
            )


def check_scatter_outputs(tensor: Tensor, outputs: Sequence[Tensor], dim: int) -> int:
    """Refuse outputs that ``tensor`` does not just fill; count ``dim`` from the front."""
    if not outputs:
        raise RuntimeError("Expected at least one output tensor to scatter to")
    dim = wrap_dim(dim, tensor.dim())
    total = 0
    for index, output in _accelerated(outputs, "output"):
        if _other_extents(output, dim) != _other_extents(tensor, dim):
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
    """Refuse inputs that do not fit, or off the accelerator; count ``dim`` from the front.

    Args:
        tensors: The inputs.
        dim: The dimension to join along.
        any_device: Whether inputs may be on any device.
    """
    if not tensors:
        raise RuntimeError("Expected at least one tensor to gather from")
    dims = tensors[0].dim()
    dim = wrap_dim(dim, dims)
    accelerated = _accelerated(tensors, "input")
    for index, tensor in enumerate(tensors) if any_device else accelerated:
        if tensor.dim() != dims:
            raise RuntimeError(
                "Expected all input tensors to have the same number of dimensions, but tensor at "
                f"index {index} has {tensor.dim()} dimensions, (expected {dims})"
            )
        _check_slice_shape(tensors, index, dim)
    return dim


def _check_slice_shape(tensors: Sequence[Tensor], index: int, dim: int) -> None:
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
    """Refuse an output that has not the gathered ``shape``."""
    if list(out.shape) != list(shape):
        raise RuntimeError(
            f"Expected out tensor to have shape {list(shape)}, but got {list(out.shape)}"
        )


def check_chunk_count(chunk_sizes: Sequence[int] | None, count: int) -> None:
    """Refuse to split over no device, or with other than one size for each of ``count``."""
    if count == 0:
        raise RuntimeError("Expected at least one device to scatter to")
    if chunk_sizes is not None and len(chunk_sizes) != count:
        raise RuntimeError(
            "Expected devices and chunk_sizes to be of same length, but got len(devices) = "
            f"{count} and len(chunk_sizes) = {len(chunk_sizes)}"
        )


def _accelerated(tensors: Sequence[Tensor], role: str) -> Iterator[tuple[int, Tensor]]:
    """Number ``tensors``; refuse, when it is its turn, one that is not on the accelerator."""
    kind = accelerator_type()
    for index, tensor in enumerate(tensors):
        if not is_of_type(tensor.device, kind):
            name = "output tensor" if role == "output" else "tensor"
            raise RuntimeError(
                f"Expected all {role} tensors to be {(kind or 'accelerator').upper()} tensors, "
                f"but {name} at index {index} has device '{tensor.device}'"
            )
        yield index, tensor


def _other_extents(tensor: Tensor, dim: int) -> tuple[int, list[int]]:
    extents = list(tensor.shape)
    return tensor.dim(), extents[:dim] + extents[dim + 1 :]


def _check_dimension(tensor: Tensor, index: int, purpose: str) -> None:
    if tensor.dim() == 0:
        raise ValueError(
            f"Expected tensors of at least one dimension to {purpose}, "
            f"but tensor at index {index} has none"
        )
