"""Detection of changes to tensors, for copies that are kept.

The version counter of a tensor shows changes in place, its *layout* another memory and another
shape. A change through ``.data``, NumPy, DLPack or a collective increases no version. A *sample*
of the elements shows such a change of the whole tensor, and a hook shows the steps of optimizers,
of which fused ones increase no version.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from threading import RLock
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from .._bucket_copies import detached_copies
from .._buckets import REPLICA_BUFFER_SIZE, plan_buckets
from .._copies import has_own_operators
from .._devices import is_of_type
from .._forks import register_fork_handler
from .._torch_private import exclude_from_compilation, use_plain_operators, use_unrecorded_views

#: For each size of an element, a dtype whose values are compared by their bits. Views with one
#: value for an element are concatenated faster than views with several.
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.int64}
#: The number of elements in the sample of a tensor.
_SAMPLE_SIZE = 16


def read_layouts(tensors: Sequence[Tensor]) -> list[tuple[Any, ...]]:
    """Return the address, device index, dtype, shape and strides of each tensor."""
    columns = (
        map(Tensor.data_ptr, tensors),
        map(Tensor.get_device, tensors),  # An index, which is read faster than a device.
        [tensor.dtype for tensor in tensors],
        map(Tensor.size, tensors),
        map(Tensor.stride, tensors),
    )
    return [*zip(*columns, strict=True)]


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
        #: Whether each byte of the samples has differed in a call of :meth:`note`.
        self._noted: Tensor | None = None

    def find_changed(self) -> list[int]:
        """Return the indices of the tensors whose samples differ. Wait for the device."""
        now = self._read()
        if now is None or self._first is None or torch.equal(now, self._first):
            return []
        return self._find_indices(now != self._first)

    def note(self) -> None:
        """Note differences for :meth:`find_noted`. Do not wait for the device."""
        now = self._read()
        if now is not None and self._first is not None:
            differs = now != self._first
            self._noted = differs if self._noted is None else self._noted | differs

    def find_noted(self) -> list[int]:
        """Return the indices of the tensors whose samples differed in a call of :meth:`note`."""
        return [] if self._noted is None else self._find_indices(self._noted)

    def _read(self) -> Tensor | None:
        parts = [torch.cat(views).flatten().view(torch.uint8) for views in self._views]
        return torch.cat(parts) if len(parts) > 1 else parts[0] if parts else None

    def _find_indices(self, differs: Tensor) -> list[int]:
        parts = torch.split(differs.cpu(), [size for _, size in self._order])
        pairs = zip(self._order, parts, strict=True)
        return sorted(index for (index, _), part in pairs if part.any())


def _sample(tensor: Tensor) -> Tensor:
    """Return a view of the bits of elements that are spread over ``tensor``, or of all."""
    flat = _sorted_by_stride(tensor).view(-1)
    step = max(1, (len(flat) - 1) // (_SAMPLE_SIZE - 1))
    if len(flat) > _SAMPLE_SIZE:
        flat = flat[::step][:_SAMPLE_SIZE]
    return flat.unsqueeze(1).view(_BITS[flat.element_size()])


def find_difference(sources: Sequence[Tensor], copies: Sequence[Tensor]) -> int | None:
    """Return the index of the first of ``copies`` whose bits are not those of its source.

    The copies are on one device. One bucket at a time is moved to the device of the sources. Wait
    for the devices.
    """
    for indices in plan_buckets(copies, REPLICA_BUFFER_SIZE):
        bucket = [sources[index] for index in indices]
        (moved,) = detached_copies([copies[index] for index in indices], [bucket[0].device])
        pairs = [(_bytes(a), _bytes(b)) for a, b in zip(bucket, moved, strict=True)]
        ours, theirs = map(torch.cat, zip(*pairs, strict=True))
        if not torch.equal(ours, theirs):
            each = zip(indices, pairs, strict=True)
            return next(index for index, pair in each if not torch.equal(*pair))
    return None


def _bytes(tensor: Tensor) -> Tensor:
    with use_plain_operators():
        return tensor.detach().contiguous().flatten().view(torch.uint8)


class StepWatcher:
    """A listener for optimizers: ``note_step`` receives the memory that a step has changed."""

    def __init__(self) -> None:
        with _lock:
            _watchers.add(self)
            if not _step_hooks:
                # `extend` stores the handles before an interrupt can arrive.
                _step_hooks.extend(_register_hooks())

    def note_step(self, memory: set[object]) -> None:
        """Note that an optimizer may have changed tensors with this :func:`memory_of`."""
        raise NotImplementedError


_watchers: WeakSet[StepWatcher] = WeakSet()
_lock = RLock()
#: The handles of the hooks of all optimizers, since the first watcher of the process.
_step_hooks: list[object] = []


def _register_hooks() -> Iterator[object]:
    # A hook of an optimizer may remove the gradients after the step, so look before it, too.
    yield register_optimizer_step_pre_hook(_note_step)
    yield register_optimizer_step_post_hook(_note_step)


@exclude_from_compilation
def _note_step(optimizer: torch.optim.Optimizer, *_: object) -> None:
    """Note the parameters of ``optimizer``, except frozen ones that have no gradient."""
    with _lock:
        watchers = [*_watchers]
    if watchers:
        memory = {
            memory_of(parameter)
            for group in optimizer.param_groups
            for parameter in group["params"]
            if parameter.requires_grad or parameter.grad is not None
        }
        for watcher in watchers:
            watcher.note_step(memory)


def _reset_after_fork() -> None:
    """Forget the watchers in a forked child, which has only one of the parent's threads."""
    global _lock
    _lock = RLock()  # Another thread of the parent may have held the old lock.
    _watchers.clear()


register_fork_handler(_reset_after_fork)
