"""Copies of tensors that a wrapper keeps, and the changes after which they are copied again.

The version counter of a tensor shows changes in place, its layout another memory and another
shape. A change through ``.data``, NumPy, DLPack or a collective increases no version. A sample
of the elements shows such a change of the whole tensor, and a hook shows the steps of optimizers,
of which fused ones increase no version.
"""

from collections.abc import Sequence
from itertools import chain
from threading import RLock
from typing import Any, ClassVar, Generic, Self, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from .._forks import register_fork_handler
from .._streams import current_stream_by_device
from .._torch_private import exclude_from_compilation, version_counters
from .changes import Samples, have_equal_bits, memory_of, read_layouts

C = TypeVar("C", bound="CopiedTensors")


class CopiedTensors:
    """Tensors and their copies, and the state of both when the copies were made.

    Args:
        sources: The tensors, all of which :func:`find_comparable` has returned.
        rows: For each device, a list with the copy of each tensor, or None.
    """

    def __init__(self, sources: Sequence[Tensor], rows: Sequence[Sequence[Any]]) -> None:
        # These references keep each `id` from coming back.
        self.sources, self.rows = sources, rows
        self.samples = Samples(sources)
        self._versioned = [  # Inference tensors have no version.
            each for each in chain(sources, *rows) if each is not None and not each.is_inference()
        ]
        #: The memory of the sources that optimizers may have changed.
        self._stepped: set[object] = set()
        self._state = self._read()

    def note_step(self, memory: set[object]) -> None:
        """Note that an optimizer may have changed the tensors with this :func:`memory_of`."""
        self._stepped.update(memory.intersection(map(memory_of, self.sources)))

    def is_current(self) -> bool:
        """Return whether no tensor and no copy has changed, apart from samples."""
        return not self._stepped and self._read() == self._state

    def find_unseen_change(self) -> int | None:
        """Return the index of a source whose last copy has other bits, though no change is seen.

        Wait for the devices.
        """
        tensors: list[Any] = [*self.sources, *self._versioned]
        states = (list(chain.from_iterable(each)) for each in (self._state, self._read()))
        seen = {id(each) for each, old, new in zip(tensors, *states, strict=True) if old != new}
        sampled = self.samples.find(self.samples.differences())
        seen.update(id(self.sources[index]) for index in sampled)
        for index, (source, copy) in enumerate(zip(self.sources, self.rows[-1], strict=True)):
            # A replica may lack a tensor, or have another one in its place.
            if copy is None or (copy.shape, copy.dtype) != (source.shape, source.dtype):
                continue
            is_seen = not seen.isdisjoint((id(source), id(copy)))
            if is_seen or memory_of(source) in self._stepped:
                continue
            if not have_equal_bits(source, copy):
                return index
        return None

    def _read(self) -> tuple[list[tuple[Any, ...]], list[object]]:
        return read_layouts(self.sources), version_counters(self._versioned)


#: Devices, and their current streams.
DeviceStreams = tuple[tuple[torch.device, torch.Stream | None], ...]


def find_device_streams(devices: Sequence[torch.device]) -> DeviceStreams:
    """Return the devices with their current streams."""
    streams = current_stream_by_device(devices)
    return tuple([(device, streams.get(device)) for device in devices])


class KeptCopies(Generic[C]):
    """Copies that a wrapper keeps. Steps of all optimizers are noted for them.

    They are no attribute of the wrapper, because copies, pickles and replicas of the wrapper would
    inherit it.
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
        self.kept: dict[DeviceStreams, C] = {}
        _all_kept[self] = None
        if len(_step_hooks) < 2:
            # A hook may remove the gradients after the step, so look before it, too. `extend`
            # stores each handle before an interrupt can arrive.
            registers = register_optimizer_step_pre_hook, register_optimizer_step_post_hook
            _step_hooks.extend(register(_note_step) for register in registers)

    @classmethod
    def find(cls, wrapper: nn.Module) -> Self | None:
        """Return the copies that ``wrapper`` keeps, if there are any."""
        return cls._by_wrapper.get(wrapper)

    @classmethod
    def find_or_make(cls, wrapper: nn.Module) -> Self:
        """Return the copies that ``wrapper`` keeps until it is freed."""
        # If two threads both make an object, `setdefault` returns the same one to both.
        return cls.find(wrapper) or cls._by_wrapper.setdefault(wrapper, cls())

    @classmethod
    def free(cls, wrapper: nn.Module) -> None:
        """Free the copies that ``wrapper`` keeps, if there are any."""
        cls._by_wrapper.pop(wrapper, None)


_all_kept: WeakKeyDictionary[KeptCopies[Any], None] = WeakKeyDictionary()
#: The handles of the hooks of all optimizers, since the first copies of the process.
_step_hooks: list[object] = []


@exclude_from_compilation
def _note_step(optimizer: torch.optim.Optimizer, *_: object) -> None:
    """Note the parameters of ``optimizer``, except frozen ones that have no gradient."""
    existing = filter(None, [reference() for reference in _all_kept.keyrefs()])
    copied = [copies for each in existing for copies in [*each.kept.values()]]
    if copied:
        memory = {
            memory_of(parameter)
            for group in optimizer.param_groups
            for parameter in group["params"]
            if parameter.requires_grad or parameter.grad is not None
        }
        for copies in copied:
            copies.note_step(memory)
