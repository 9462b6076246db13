"""Copies of frozen parameters that are kept between the forwards of a wrapper.

A parameter is frozen if it does not require grad. ``k`` is the number of devices.
"""

from collections.abc import Iterable, Mapping, Sequence
from threading import RLock
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from .._buckets import detached_copies
from .._copies import detached
from .._settings import register_fork_handler
from .._streams import current_stream_by_device
from .._torch_private import call_with_inference_mode, version_counters
from .changes import Samples, StepWatcher, find_comparable, memory_of, read_layouts


class _Kept(NamedTuple):
    """One copy, the state of its source when it was made, and its own version at that time."""

    copy: Tensor
    state: tuple[Any, ...]
    version: object
    source: Tensor  # This reference keeps the `id` of the source from coming back.
    memory: object


class _Row(NamedTuple):
    """The copies for one replica. They are ready on ``stream``, and are freed on it."""

    device: torch.device
    stream: torch.Stream | None
    copies: dict[int, _Kept]  # The key is the `id` of the source.


class FrozenCopies(StepWatcher):
    """The copies of the frozen parameters of one wrapper: at most one for each replica."""

    def __init__(self) -> None:
        super().__init__()
        self._rows: dict[int, _Row] = {}
        #: The parameters that have copies, and their samples. Each sample refers to the memory of
        #: its parameter, so no other tensor gets this address.
        self._sampled: list[Tensor] = []
        self._samples = Samples([])
        #: The stream of the first device on which the samples are ready.
        self._stream: torch.Stream | None = None
        # A signal handler may call the wrapper in a thread that holds the lock.
        self._lock = RLock()

    def note_step(self, memory: set[object]) -> None:
        """Drop the copies of tensors with this memory."""
        with self._lock:
            self._drop(
                key
                for row in self._rows.values()
                for key, kept in row.copies.items()
                if kept.memory in memory
            )

    def copy(
        self, parameters: Sequence[Tensor], targets: Sequence[torch.device], detach: bool
    ) -> tuple[Sequence[Tensor], list[list[Tensor]]]:
        """Return the parameters whose copies are kept, and ``k`` lists of their copies.

        The first list has the parameters themselves, detached from their history unless
        ``detach`` is true. The other lists have detached tensors that share the memory of the kept
        copies. A parameter is copied if its state or its sample has changed since the last call,
        or if there is no copy on the current streams. Wait for the first device.
        """
        # Inference tensors have no version counter.
        sources = find_comparable(
            each for each in parameters if not (each.requires_grad or each.is_inference())
        )
        rows = [[*sources] if detach else [detached(source, source) for source in sources]]
        with self._lock:
            streams = current_stream_by_device(targets)
            if streams.get(targets[0]) != self._stream:
                self._rows, self._samples = {}, Samples([])
                self._stream = streams.get(targets[0])
            self._drop(id(self._sampled[index]) for index in self._samples.find_changed())
            states = dict(
                zip(
                    map(id, sources),
                    zip(version_counters(sources), read_layouts(sources), strict=True),
                    strict=True,
                )
            )
            self._rows = {
                index: row._replace(copies=_current(row.copies, states))
                for index, row in self._rows.items()
            }
            kept = self._copy_missing(sources, states, targets, streams)
            rows += [
                [detached(copies[id(source)].copy, source) for source in sources]
                for copies in kept
            ]
        return sources, rows

    def _drop(self, keys: Iterable[int]) -> None:
        for key in {*keys}:
            for row in self._rows.values():
                row.copies.pop(key, None)

    def _copy_missing(
        self,
        sources: Sequence[Tensor],
        states: Mapping[int, tuple[Any, ...]],
        targets: Sequence[torch.device],
        streams: Mapping[torch.device, torch.Stream],
    ) -> list[dict[int, _Kept]]:
        """Return the copies for all ``targets`` but the first."""
        is_copied, rows = False, []
        for index, target in enumerate(targets[1:], 1):
            stream, row = streams.get(target), self._rows.get(index)
            if row is None or (row.device, row.stream) != (target, stream):
                row = self._rows[index] = _Row(target, stream, {})
            missing = [source for source in sources if id(source) not in row.copies]
            copies = _copy(missing, targets[0], target) if missing else []
            is_copied = is_copied or bool(missing)
            versions = version_counters(copies)
            for source, copy, version in zip(missing, copies, versions, strict=True):
                state, memory = states[id(source)], memory_of(source)
                row.copies[id(source)] = _Kept(copy, state, version, source, memory)
            rows.append(row.copies)
        if is_copied or len(sources) != len(self._sampled):
            self._sampled, self._samples = [*sources], Samples(sources)
        return rows


def _current(
    copies: Mapping[int, _Kept], states: Mapping[int, tuple[Any, ...]]
) -> dict[int, _Kept]:
    """Return those of ``copies`` whose source has the state in ``states``, and did not change."""
    versions = version_counters([kept.copy for kept in copies.values()])
    return {
        key: kept
        for (key, kept), version in zip(copies.items(), versions, strict=True)
        if kept.version == version and kept.state == states.get(key)
    }


def _copy(tensors: Sequence[Tensor], source: torch.device, target: torch.device) -> list[Tensor]:
    # A copy in a bucket would keep the memory of the whole bucket. Leave inference mode, because
    # the next forward may run outside of inference mode and could not use inference tensors.
    _, copies = call_with_inference_mode(
        False, lambda: detached_copies(tensors, [source, target], buffer_size=0)
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
