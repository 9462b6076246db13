"""The parts of a tensor that show changes: its layout, a sample of its elements, and its bits."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from .._copies import has_own_operators, to_device
from .._devices import is_of_type
from .._torch_private import use_plain_operators, use_unrecorded_views

#: For each size of an element, a dtype whose values are compared by their bits. Views with one
#: value for an element are concatenated faster than views with several.
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.int64}
#: The number of elements in the sample of a tensor.
_SAMPLE_SIZE = 16


def read_layouts(tensors: Sequence[Tensor]) -> list[tuple[Any, ...]]:
    """Return the address, device index, dtype, shape and strides of each tensor."""
    # The index of a device is read faster than the device.
    return [(t.data_ptr(), t.get_device(), t.dtype, t.size(), t.stride()) for t in tensors]


def memory_of(tensor: Tensor) -> object:
    """Return a key that is equal for tensors that share a storage."""
    try:
        address = tensor.untyped_storage().data_ptr()
    except RuntimeError:  # A sparse tensor, or one of a class without a storage.
        address = 0
    return (tensor.device, address) if address else id(tensor)


def find_comparable(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Return those of ``tensors`` that have a layout, samples and bits."""
    with use_plain_operators():  # A subclass may refuse an operator.
        return [each for each in tensors if _is_comparable(each)]


def _is_comparable(tensor: Tensor) -> bool:
    return (
        tensor.layout is torch.strided
        and not has_own_operators(tensor)
        and not tensor.is_quantized
        and not tensor.is_conj()
        and not tensor.is_neg()
        and not is_of_type(tensor.device, "meta")
        and _sorted_by_stride(tensor).is_contiguous()
    )


def _sorted_by_stride(tensor: Tensor) -> Tensor:
    """Return a view whose dimensions have the order of the memory."""
    if tensor.is_contiguous():
        return tensor.detach()
    order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    return tensor.detach().permute(order)


class Samples:
    """Samples of tensors on one device, as they were at first and as they are.

    A read is one concatenation for each size of an element. The samples refer to the memory of the
    tensors, so its address does not come back while they exist.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        groups: dict[int, list[tuple[int, Tensor]]] = defaultdict(list)
        # A recorded view would refer to its tensor, so that `swap_tensors` would refuse it.
        with use_plain_operators(), use_unrecorded_views():
            for index, tensor in enumerate(tensors):
                groups[tensor.element_size()].append((index, _sample(tensor)))
        self._views = [[view for _, view in group] for group in groups.values()]
        #: The index of each tensor, and the bytes of its sample, in the order of a read.
        self._order = [(index, view.nbytes) for group in groups.values() for index, view in group]
        self._first = self._read()

    def differences(self) -> Tensor:
        """Return whether each byte of the samples has changed. Do not wait for the device."""
        return self._read() != self._first

    def find(self, differences: Tensor) -> list[int]:
        """Return the indices of the tensors that have ``differences``. Wait for the device."""
        if not differences.any():
            return []
        parts = torch.split(differences.cpu(), [size for _, size in self._order])
        pairs = zip(self._order, parts, strict=True)
        return sorted(index for (index, _), part in pairs if part.any())

    def _read(self) -> Tensor:
        parts = [torch.cat(views).flatten().view(torch.uint8) for views in self._views]
        if not parts:
            return torch.empty(0, dtype=torch.uint8)
        return torch.cat(parts) if len(parts) > 1 else parts[0]


def _sample(tensor: Tensor) -> Tensor:
    """Return a view of the bits of elements that are spread over ``tensor``, or of all."""
    flat = _sorted_by_stride(tensor).view(-1)
    step = max(1, (len(flat) - 1) // (_SAMPLE_SIZE - 1))
    if len(flat) > _SAMPLE_SIZE:
        flat = flat[::step][:_SAMPLE_SIZE]
    return flat.unsqueeze(1).view(_BITS[flat.element_size()])


def have_equal_bits(a: Tensor, b: Tensor) -> bool:
    """Return whether the elements of ``a``, and of ``b`` on another device, have equal bits."""
    with use_plain_operators():
        pair = [each.detach().contiguous().flatten() for each in (a, to_device(b, a.device))]
        return torch.equal(*[each.view(torch.uint8) for each in pair])
