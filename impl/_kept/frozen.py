"""Copies of frozen parameters that are kept between the forwards of a wrapper.

A parameter is frozen if it does not require grad. ``k`` is the number of devices.
"""

from collections.abc import Sequence
from itertools import chain
from threading import RLock
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from .._bucket_copies import detached_copies
from .._copies import detached
from .._forks import register_fork_handler
from .._streams import current_stream_by_device
from .._torch_private import call_with_inference_mode, version_counters
from .changes import Samples, StepWatcher, find_comparable, memory_of, read_layouts


class FrozenCopies(StepWatcher):
    """The copies of the frozen parameters of one wrapper: at most one for each replica."""

    def __init__(self) -> None:
        super().__init__()
        # A signal handler may call the wrapper in a thread that holds the lock.
        self._lock = RLock()
        self._forget()

    def _forget(self) -> None:
        #: The parameters that have copies. This reference keeps each `id` from coming back, and
        #: each sample keeps the address of its parameter.
        self._sources: Sequence[Tensor] = ()
        self._samples = Samples([])
        #: The devices and their current streams. The copies are ready on these streams, and are
        #: freed on them. There is a list of copies for each device after the first.
        self._places: list[tuple[torch.device, torch.Stream | None]] = []
        self._rows: list[list[Tensor]] = []
        self._state: object = None

    def note_step(self, memory: set[object]) -> None:
        """Forget the copies if one of their parameters has this memory."""
        with self._lock:
            if not memory.isdisjoint(map(memory_of, self._sources)):
                self._forget()

    def copy(
        self, parameters: Sequence[Tensor], targets: Sequence[torch.device], detach: bool
    ) -> tuple[Sequence[Tensor], list[list[Tensor]]]:
        """Return the parameters whose copies are kept, and ``k`` lists of their copies.

        The first list has the parameters themselves, detached from their history unless
        ``detach`` is true. The other lists have detached tensors that share the memory of the kept
        copies. The parameters are copied if the state or the sample of one of them has changed
        since the last call, or if there are no copies on the current streams. Wait for the first
        device.
        """
        # Inference tensors have no version counter.
        sources = find_comparable(
            each for each in parameters if not (each.requires_grad or each.is_inference())
        )
        own = [*sources] if detach else [detached(source, source) for source in sources]
        with self._lock:
            streams = current_stream_by_device(targets)
            places = [(target, streams.get(target)) for target in targets]
            if not self._are_current(sources, places):
                self._forget()
            kept = self._rows
            if len(self._places) < len(places):
                samples = self._samples if kept else Samples(sources)
                kept = [*kept, *_copy(sources, targets[0], targets[1 + len(kept) :])]
                # A signal handler may have used this object before this line.
                self._sources, self._samples = sources, samples
                self._rows, self._places = kept, places
                self._state = self._read_state()
            rows = [[*map(detached, row, sources)] for row in kept[: len(targets) - 1]]
        return sources, [own, *rows]

    def _are_current(
        self, sources: Sequence[Tensor], places: list[tuple[torch.device, torch.Stream | None]]
    ) -> bool:
        """Return whether the copies have the values of ``sources``. They may lack devices."""
        count = min(len(places), len(self._places))
        return (
            places[:count] == self._places[:count]
            and [*map(id, sources)] == [*map(id, self._sources)]
            and self._read_state() == self._state
            and not self._samples.find_changed()
        )

    def _read_state(self) -> object:
        copies = chain.from_iterable(self._rows)
        return version_counters([*self._sources, *copies]), read_layouts(self._sources)


def _copy(
    tensors: Sequence[Tensor], source: torch.device, targets: Sequence[torch.device]
) -> list[list[Tensor]]:
    # Leave inference mode, because the next forward may run outside of inference mode and could
    # not use inference tensors.
    _, *copies = call_with_inference_mode(
        False, lambda: detached_copies(tensors, [source, *targets])
    )
    return copies


#: For each wrapper that has kept copies of frozen parameters: the copies. They are no attribute of
#: the wrapper, because copies and pickles of the wrapper would inherit it.
_copies: WeakKeyDictionary[nn.Module, FrozenCopies] = WeakKeyDictionary()


def find_frozen_copies(wrapper: nn.Module) -> FrozenCopies:
    """Return the copies of frozen parameters that ``wrapper`` keeps until it is freed."""
    found = _copies.get(wrapper)
    # If two threads both make an object, `setdefault` returns the same one to both.
    return _copies.setdefault(wrapper, FrozenCopies()) if found is None else found


def free_frozen_copies(wrapper: nn.Module) -> None:
    """Free the copies of frozen parameters that ``wrapper`` keeps, if there are any."""
    _copies.pop(wrapper, None)


# A forked child has only one of the parent's threads. Another one may have held a lock of copies.
register_fork_handler(_copies.clear)
