"""Checks of the arguments of ``comm``, with the error messages of torch.nn.parallel."""

from collections.abc import Iterable, Sequence
from numbers import Real

from torch import Tensor

from ._arguments import as_list
from ._devices import accelerator_type, is_on_accelerator
from ._split_and_cat import wrap_dim


def check_not_given_with_out(**kwargs: object) -> None:
    for name, value in kwargs.items():
        if value is not None:
            raise RuntimeError(
                f"'{name}' must not be specified when 'out' is specified, but got {name}={value}"
            )


def check_broadcast_outputs(tensor: Tensor, outputs: Sequence[Tensor]) -> None:
    """Check that all outputs are on the accelerator and have the shape of ``tensor``."""
    for index, output in enumerate(outputs):
        _check_on_accelerator(output, index, "output")
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
    for index, output in enumerate(outputs):
        _check_on_accelerator(output, index, "output")
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
    """Check that inputs can be concatenated. Return ``dim`` as a non-negative number."""
    if not tensors:
        raise RuntimeError("Expected at least one tensor to gather from")
    dims, expected = tensors[0].dim(), list(tensors[0].shape)
    dim = wrap_dim(dim, dims)
    for index, tensor in enumerate(tensors):
        if not any_device:
            _check_on_accelerator(tensor, index, "input")
        if tensor.dim() != dims:
            raise RuntimeError(
                "Expected all input tensors to have the same number of dimensions, but tensor at "
                f"index {index} has {tensor.dim()} dimensions, (expected {dims})"
            )
        if dims == 0:
            _check_dimension(tensor, index, "gather")
        expected[dim] = tensor.size(dim)
        if list(tensor.shape) != expected:
            raise RuntimeError(
                f"Input tensor at index {index} has invalid shape {list(tensor.shape)}, "
                f"but expected {expected}"
            )
    return dim


def as_chunk_sizes(chunk_sizes: Iterable[int] | None, count: int) -> list[int] | None:
    """Return a list of ``chunk_sizes``. Check that there is one for each of ``count`` devices."""
    if count == 0:
        raise RuntimeError("Expected at least one device to scatter to")
    if chunk_sizes is None:
        return None
    sizes = as_list("chunk_sizes", chunk_sizes)
    if len(sizes) != count:
        raise RuntimeError(
            "Expected devices and chunk_sizes to be of same length, but got len(devices) = "
            f"{count} and len(chunk_sizes) = {len(sizes)}"
        )
    return sizes


def check_sum_buffer_size(size: object) -> None:
    """Raise TypeError if ``size`` is not a number. torch.nn.parallel takes any number for sums."""
    if not issubclass(type(size), Real):
        raise TypeError(f"buffer_size must be a number of bytes, not {type(size).__name__}")


def _check_on_accelerator(tensor: Tensor, index: int, role: str) -> None:
    """Raise RuntimeError unless ``tensor`` is on an accelerator.

    As in torch.nn.parallel, callers finish the checks of one tensor before the next is checked.
    """
    if not is_on_accelerator(tensor):
        name = "output tensor" if role == "output" else "tensor"
        device_type = (accelerator_type() or "accelerator").upper()
        raise RuntimeError(
            f"Expected all {role} tensors to be {device_type} tensors, "
            f"but {name} at index {index} has device '{tensor.device}'"
        )


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
