"""The buffers of kept replicas, which are copied again when they have changed."""

from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from .._buckets import detached_copies
from .._module_tree import check_source
from .._torch_private import call_with_inference_mode, version_counters
from .changes import find_comparable
from .state import CopiedTensors, NamedModules, find_module, join_names

#: For the index of each buffer: the dictionary that contains the buffer, and the key in it.
_BufferSlots = dict[int, tuple[Any, str]]


class Buffers:
    """The buffers of a module and of its replicas."""

    def __init__(
        self,
        named_modules: NamedModules,
        replicas: Sequence[Any],
        targets: Sequence[torch.device],
        forward: int,
    ) -> None:
        self._root, self._replicas = named_modules[0][1], replicas
        self._targets = targets[: len(replicas)]
        #: For each buffer: the names of its module and of the buffer.
        self._keys = [
            (name, key)
            for name, module in named_modules
            for key, buffer in module._buffers.items()
            if buffer is not None
        ]
        # The first dictionary is for the original module. If an overridden `replicate` has left a
        # submodule out of a replica, the replica's dictionary lacks the submodule's buffers.
        self._slots: list[_BufferSlots] = [
            {
                index: (buffers, key)
                for index, (name, key) in enumerate(self._keys)
                if (buffers := _find_buffers(root, name)) is not None
            }
            for root in (self._root, *replicas)
        ]
        buffers = [self._source(index) for index in range(len(self._keys))]
        comparable = {*map(id, find_comparable(buffers))}
        # `functional.batch_norm` changes statistics without increasing their versions. In training
        # mode all buffers that could be such statistics are therefore copied for each forward, and
        # so are those whose changes cannot be detected.
        training = dict.fromkeys(name for name, module in named_modules if module.training)
        self._always_copied = [
            index
            for index, ((name, _), buffer) in enumerate(zip(self._keys, buffers, strict=True))
            if id(buffer) not in comparable
            or buffer.is_inference()
            or (name in training and buffer.dim() == 1 and buffer.is_floating_point())
        ]
        self._watched = [
            index for index in range(len(self._keys)) if index not in {*self._always_copied}
        ]
        # The buffers of each module of the replicas, and whether each of them is None at first.
        self._dicts: list[dict[str, Tensor | None]] = [
            found
            for root in replicas
            for name, _ in named_modules
            if isinstance(found := getattr(find_module(root, name), "_buffers", None), dict)
        ]
        self._original_nones = [
            {name: buffer is None for name, buffer in found.items()} for found in self._dicts
        ]
        self._names = _read_names(self._dicts)
        self._error: str | None = None
        self._save(forward)

    def update(self, forward: int) -> None:
        """Replace each buffer that has changed in the module or in a replica.

        Afterwards the buffers equal those of newly built replicas. The buffers of the first
        replica are the module's own.
        """
        self._reset_names()
        if self._read_states() != self._states:
            # Copy all buffers: new samples replace those that show earlier changes of the others.
            self._error = self.find_error(compares=False)
            self._copy(range(len(self._keys)))
            self._save(forward)
        else:
            self._copied.sample()
            self._copy(self._always_copied)

    def find_error(self, *, compares: bool) -> str | None:
        """Return a text if a forward has used old values."""
        return self._error or self._copied.find_error(compares=compares)

    def _reset_names(self) -> None:
        """Remove the buffers that forwards have registered, and reset those that were None."""
        if _read_names(self._dicts) == self._names:
            return
        for buffers, nones in zip(self._dicts, self._original_nones, strict=True):
            for name in buffers.keys() - nones.keys():
                del buffers[name]
            buffers.update((name, None) for name, is_none in nones.items() if is_none)

    def _copy(self, indices: Collection[int]) -> None:
        if not indices:
            return
        # A buffer with several names is copied once to each device.
        changed = {id(buffer): buffer for buffer in map(self._source, indices)}
        if {buffer.device for buffer in changed.values()} - {self._targets[0]}:
            check_source(self._root, self._targets[0])
        sources = [*changed.values()]
        copies = call_with_inference_mode(False, lambda: detached_copies(sources, self._targets))
        for slots, tensors in zip(self._slots[1:], copies, strict=True):
            copies_by_id = dict(zip(changed, tensors, strict=True))
            for index, (buffers, key) in slots.items():
                copy = copies_by_id.get(id(self._source(index)))
                if copy is not None:
                    buffers[key] = copy

    def _save(self, forward: int) -> None:
        watched = {join_names(*self._keys[index]): self._source(index) for index in self._watched}
        comparable = {*map(id, find_comparable(watched.values()))}
        named = {name: each for name, each in watched.items() if id(each) in comparable}
        self._copied = call_with_inference_mode(
            False, lambda: CopiedTensors(named, self._replicas, forward)
        )
        # Keep references to the tensors, so that no other object can get the same `id`.
        self._tensors = self._read()
        self._states = self._read_states()

    def _source(self, index: int) -> Tensor:
        buffers, key = self._slots[0][index]
        source: Tensor = buffers[key]
        return source

    def _read(self) -> list[Tensor | None]:
        return [
            slots[index][0].get(slots[index][1])
            for slots in self._slots
            for index in self._watched
            if index in slots
        ]

    def _read_states(self) -> tuple[list[int], list[object], list[Any]]:
        tensors = self._read()
        return [*map(id, tensors)], version_counters(tensors), _read_addresses(tensors)


def _read_names(each: Sequence[Mapping[str, Tensor | None]]) -> list[list[Any]]:
    """Return the number and names of the buffers of each module, and which of them are None."""
    filled = [members for members in each if members]
    return [
        [*map(len, each)],
        [*chain.from_iterable(filled)],
        [buffer is None for members in filled for buffer in members.values()],
    ]


def _read_addresses(tensors: Sequence[Tensor | None]) -> list[Any]:
    try:
        return [*map(Tensor.data_ptr, tensors)]  # type: ignore[arg-type] # None raises TypeError
    except (RuntimeError, TypeError):  # A tensor is None, or is sparse and has no address.
        return [
            None if tensor is None or tensor.layout is not torch.strided else tensor.data_ptr()
            for tensor in tensors
        ]


def _find_buffers(root: Any, name: str) -> Any:
    """Return the buffers of the submodule ``name``; None if there is no submodule."""
    return getattr(find_module(root, name), "_buffers", None)
