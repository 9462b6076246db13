"""Copies of tensors that a wrapper keeps, and the changes after which they are copied again.

The version counter of a tensor shows changes in place, its layout another memory and another
shape. A change through ``.data``, NumPy, DLPack or a collective increases no version. A sample
of the elements shows such a change of the whole tensor, and a hook shows the steps of optimizers,
of which fused ones increase no version.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from itertools import chain
from operator import attrgetter
from threading import RLock
from typing import Any, ClassVar, Generic, Self, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from ._bucket_copies import detached_copies
from ._copies import detached, has_own_operators, to_device
from ._devices import is_of_type, runtimes_with_streams
from ._settings import register_fork_handler
from ._torch_private import (
    call_with_inference_mode,
    current_device_readers,
    exclude_from_compilation,
    use_plain_operators,
    use_unrecorded_views,
    version_counters,
)

C = TypeVar("C", bound="CopyEntry")

# The parts of a tensor that show changes: its layout, a sample of its elements, and its bits.

#: For each size of an element, a dtype whose values are compared by their bits. Views with one
#: value for an element are concatenated faster than views with several.
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.int64}
#: The number of elements in the sample of a tensor.
_SAMPLE_SIZE = 16


def _read_layouts(tensors: Sequence[Tensor]) -> list[list[Any]]:
    """Return the addresses, device indices, dtypes, shapes and strides of the tensors."""
    # A map is faster than a loop, and the index of a device is read faster than the device.
    return [
        [*map(Tensor.data_ptr, tensors)],
        [*map(Tensor.get_device, tensors)],
        [*map(attrgetter("dtype"), tensors)],
        [*map(Tensor.size, tensors)],
        [*map(Tensor.stride, tensors)],
    ]


def _memory_of(tensor: Tensor) -> object:
    """Return a key that is equal for tensors that share a storage."""
    try:
        address = tensor.untyped_storage().data_ptr()
    except RuntimeError:  # A sparse tensor, or one of a class without a storage.
        address = 0
    return (tensor.device, address) if address else id(tensor)


def find_comparable(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Return those of ``tensors`` whose layout, samples and bits can be compared."""
    with use_plain_operators():  # A subclass may refuse an operator.
        return [each for each in tensors if _is_comparable(each)]


def _is_comparable(tensor: Tensor) -> bool:
    return (
        tensor.layout is torch.strided
        and not has_own_operators(type(tensor))
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


class _Samples:
    """Samples of tensors on one device, as they were at first and as they are.

    A read concatenates the samples of each size of an element, then all of them. The samples refer
    to the memory of the tensors, so its address does not come back while they exist.
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


def _have_equal_bits(a: Tensor, b: Tensor) -> bool:
    """Return whether the elements of ``a``, and of ``b`` on another device, have equal bits."""
    with use_plain_operators():
        pair = [each.detach().contiguous().flatten() for each in (a, to_device(b, a.device))]
        return torch.equal(*[each.view(torch.uint8) for each in pair])


# Copies, and the state of the tensors when they were made.


class CopyEntry:
    """Tensors and their copies, and the state of both when the copies were made.

    ``copies`` has for each device a list with the copy of each tensor, or None.
    """

    def __init__(self, sources: Sequence[Tensor], copies: Sequence[Sequence[Any]]) -> None:
        # These references keep each `id` from coming back.
        self.sources, self.copies = sources, copies
        self.samples = _Samples(sources)
        self._versioned = [  # Inference tensors have no version.
            each
            for each in chain(sources, *copies)
            if each is not None and not each.is_inference()
        ]
        #: The memory of the sources that optimizers may have changed.
        self._stepped: set[object] = set()
        self._state = self._read()
        (addresses, *_), versions = self._state
        self._memory = addresses, versions[: len(sources)]

    def note_step(self, memory: set[object]) -> None:
        """Note that an optimizer may have changed the tensors with this :func:`_memory_of`."""
        self._stepped.update(memory.intersection(map(_memory_of, self.sources)))

    def is_current(self) -> bool:
        """Return whether no tensor and no copy has changed, apart from samples."""
        return not self._stepped and self._read() == self._state

    def sources_seem_unchanged(self) -> bool:
        """Return whether all sources have the addresses and versions of before."""
        now = [*map(Tensor.data_ptr, self.sources)], version_counters(self.sources)
        return not self._stepped and now == self._memory

    def find_unseen_change(self) -> int | None:
        """Return the index of a source whose last copy has other bits, without a seen change."""
        seen = self.find_seen_changes().union(self.samples.find(self.samples.differences()))
        for index, (source, copy) in enumerate(zip(self.sources, self.copies[-1], strict=True)):
            # A replica may lack a tensor, or have another one in its place.
            if copy is None or (copy.shape, copy.dtype) != (source.shape, source.dtype):
                continue
            if index not in seen and not _have_equal_bits(source, copy):
                return index
        return None

    def find_seen_changes(self) -> set[int]:
        """Return the indices of sources of which a change is seen, or one of their last copy."""
        now = self._read()
        layouts = [[*zip(*columns, strict=True)] for columns, _ in (self._state, now)]
        states = zip(self.sources, *layouts, strict=True)
        seen = {id(each) for each, old, new in states if old != new}
        pairs = zip(self._versioned, self._state[1], now[1], strict=True)
        seen.update(id(each) for each, old, new in pairs if old != new)
        return {
            index
            for index, (source, copy) in enumerate(zip(self.sources, self.copies[-1], strict=True))
            if id(source) in seen or id(copy) in seen or _memory_of(source) in self._stepped
        }

    def find_reshaped(self) -> list[int]:
        """Return the indices of sources whose layout alone has changed, as by ``.data``."""
        states = [
            zip(addresses, versions, zip(*layout, strict=True), strict=False)
            for (addresses, *layout), versions in (self._state, self._read())
        ]
        return [
            index
            for index, (old, new) in enumerate(zip(*states, strict=True))
            if old[:2] == new[:2] and old != new
        ]

    def _read(self) -> tuple[list[list[Any]], list[object]]:
        return _read_layouts(self.sources), version_counters(self._versioned)


#: Devices, and their current streams.
_DeviceStreams = tuple[tuple[torch.device, torch.Stream | None], ...]


def find_device_streams(devices: Sequence[torch.device]) -> _DeviceStreams:
    """Return the devices with their current streams."""
    return tuple([(device, read()) for device, read in stream_readers(tuple(devices))])


@cache
def stream_readers(
    devices: Sequence[torch.device],
) -> list[tuple[torch.device, Callable[[], torch.Stream | None]]]:
    """Return each device with a function that returns its current stream, or None."""
    readers: dict[torch.device, Callable[[], torch.Stream | None]] = {
        device: partial(current_device_readers(runtime)[0], device.index)
        for device, runtime in runtimes_with_streams(devices).items()
    }
    return [(each, readers.get(each, type(None))) for each in devices]


class CopyCache(Generic[C]):
    """The copies that one wrapper keeps: entries by the current streams.

    Steps of all optimizers are noted in the entries. The cache is no attribute of the wrapper,
    because copies, pickles and replicas of the wrapper would inherit it.
    """

    _by_wrapper: ClassVar[WeakKeyDictionary[nn.Module, Any]]

    def __init_subclass__(cls) -> None:
        cls._by_wrapper = WeakKeyDictionary()
        # A forked child has only one of the parent's threads. Another one may have held a lock.
        register_fork_handler(cls._by_wrapper.clear)

    def __init__(self) -> None:
        # Several threads may call the wrapper, and a signal handler may call it in a thread that
        # holds the lock.
        self.lock = RLock()
        # The copies are ready on the streams of the key, and are freed on these.
        self.entries: dict[_DeviceStreams, C] = {}
        _caches[self] = None
        if len(_step_hooks) < 2:
            # A hook may remove the gradients after the step, so look before it, too. `extend`
            # stores each handle before an interrupt can arrive.
            registers = register_optimizer_step_pre_hook, register_optimizer_step_post_hook
            _step_hooks.extend(register(_note_step) for register in registers)

    @classmethod
    def find(cls, wrapper: nn.Module) -> Self | None:
        """Return the cache of ``wrapper``, if there is one."""
        return cls._by_wrapper.get(wrapper)

    @classmethod
    def find_or_make(cls, wrapper: nn.Module) -> Self:
        """Return the cache of ``wrapper``, which exists until the wrapper is freed."""
        # If two threads both make an object, `setdefault` returns the same one to both.
        return cls.find(wrapper) or cls._by_wrapper.setdefault(wrapper, cls())

    @classmethod
    def free(cls, wrapper: nn.Module) -> None:
        """Free the cache of ``wrapper``, if there is one."""
        cls._by_wrapper.pop(wrapper, None)


_caches: WeakKeyDictionary[CopyCache[Any], None] = WeakKeyDictionary()
#: The handles of the hooks of all optimizers, since the first copies of the process.
_step_hooks: list[object] = []


@exclude_from_compilation
def _note_step(optimizer: torch.optim.Optimizer, *_: object) -> None:
    """Note the parameters of ``optimizer``, except frozen ones that have no gradient."""
    existing = filter(None, [reference() for reference in _caches.keyrefs()])
    entries = [entry for each in existing for entry in [*each.entries.values()]]
    if entries:
        memory = {
            _memory_of(parameter)
            for group in optimizer.param_groups
            for parameter in group["params"]
            if parameter.requires_grad or parameter.grad is not None
        }
        for entry in entries:
            entry.note_step(memory)


# Copies of frozen parameters, which do not require grad. ``k`` is the number of devices.


class ParameterCache(CopyCache[CopyEntry]):
    """The copies of the frozen parameters of one wrapper: at most one for each replica."""

    def copy(
        self, parameters: Sequence[Tensor], targets: Sequence[torch.device], detach: bool
    ) -> tuple[Sequence[Tensor], list[list[Tensor]]]:
        """Return the parameters whose copies are kept, and ``k`` lists of their copies.

        The first list has the parameters themselves, detached from their history unless
        ``detach`` is true. The other lists have detached tensors that share the memory of the kept
        copies. The parameters are copied if one of them has changed since the last call, or if
        there are no copies on the current streams. Wait for the first device.
        """
        # Inference tensors have no version counter.
        sources = find_comparable(
            each for each in parameters if not (each.requires_grad or each.is_inference())
        )
        own = [*sources] if detach else [detached(source, source) for source in sources]
        streams = find_device_streams(targets)
        with self.lock:
            entry = self._find_current(sources, streams)
            if entry is None:
                self.entries.clear()  # Free the old copies first.
                # Leave inference mode, because the next forward may run outside of inference mode
                # and could not use inference tensors.
                _, *copies = call_with_inference_mode(
                    False, lambda: detached_copies(sources, targets)
                )
                entry = self.entries[streams] = CopyEntry(sources, copies)
            kept = entry.copies[: len(targets) - 1]
            return sources, [own] + [[*map(detached, each, sources)] for each in kept]

    def _find_current(
        self, sources: Sequence[Tensor], streams: _DeviceStreams
    ) -> CopyEntry | None:
        """Return the entry that is current and has a copy for each of ``streams``."""
        for kept_streams, entry in self.entries.items():
            if (
                streams == kept_streams[: len(streams)]
                and [*map(id, sources)] == [*map(id, entry.sources)]
                and entry.is_current()
                and not entry.samples.find(entry.samples.differences())
            ):
                return entry
        return None
