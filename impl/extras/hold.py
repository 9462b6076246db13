"""Replicas that are cached inside ``with wrapper.hold()``."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from threading import RLock
from typing import Any

import torch
from torch import Tensor, nn

from .._comm import detached_copies
from .._compat import call_with_inference_mode
from .._device import DeviceId, as_device_or_current, current_stream_by_device
from .._replica import check_source
from .module_state import (
    ModuleSnapshot,
    NamedModules,
    States,
    change_error,
    differing_indices,
    flat_buffers,
    flat_members,
    read_states,
)

#: For the index of each buffer: the mapping that contains the buffer, and the key in this mapping.
_BufferSlots = dict[int, tuple[Any, str]]


class ReplicaCache:
    """The replicas of one wrapper, cached while ``with`` blocks of ``hold`` are active."""

    def __init__(self, device_ids: Sequence[DeviceId]) -> None:
        self.blocks: set[object] = set()  # An object for each active block.
        self._device_ids = list(device_ids)
        self._snapshot: ModuleSnapshot | None = None
        # The key is the tuple of the streams that were current when the replicas were built. The
        # copies are ready on these streams, and their memory is freed on these streams. A forward
        # on other streams builds other replicas.
        self._replicas: dict[tuple[torch.Stream, ...], _Replicas] = {}
        # Forwards in several threads may use the cache at the same time, and a signal handler may
        # call the wrapper in a thread that holds the lock.
        self._lock = RLock()

    def note_step(self, changed: Sequence[Tensor]) -> None:
        """Note that an optimizer has changed the tensors in ``changed``."""
        if self._snapshot is not None:
            self._snapshot.note_step(changed)

    def replicas(
        self, module: nn.Module, device_ids: Sequence[DeviceId], build: Callable[[], Sequence[Any]]
    ) -> Sequence[Any]:
        """Return one replica with the current state of ``module`` for each device.

        If none are cached, ``build`` builds them. Raise RuntimeError if grad mode is on, or if the
        module or the devices have changed since the first call.
        """
        if torch.is_grad_enabled():
            raise RuntimeError(
                "Held replicas are detached, and grad mode is on: call the module under "
                "torch.no_grad(), or outside of hold()"
            )
        if list(device_ids) != self._device_ids:
            raise change_error(f"the devices, {self._device_ids}, have become {list(device_ids)}")
        targets = [as_device_or_current(device) for device in device_ids]
        with self._lock:
            snapshot = self._snapshot or ModuleSnapshot(module)
            snapshot.check(module)
            replicas = self._replicas.get(_stream_key(targets))
            if replicas is None or replicas.have_other_parameters():
                # Leave inference mode, because the next forward may run outside of inference mode
                # and could not use inference tensors.
                built = call_with_inference_mode(False, build)
                replicas = _Replicas(snapshot.named_modules, built, targets)
                self._replicas[_stream_key(targets)] = replicas
                self._snapshot = snapshot
            else:
                replicas.update_buffers()
            return replicas.all


class _Replicas:
    """Cached replicas, and the last known state of all buffers of the module and the replicas."""

    def __init__(
        self, named_modules: NamedModules, replicas: Sequence[Any], targets: Sequence[torch.device]
    ) -> None:
        self.all = replicas
        self._root = named_modules[0][1]
        self._targets = targets[: len(replicas)]
        keys = [
            (name, key)
            for name, module in named_modules
            for key in _names_of_tensors(module._buffers)
        ]
        # `functional.batch_norm` changes statistics without increasing their versions. In training
        # mode all buffers that could be such statistics are therefore copied for each forward.
        could_be_statistics = [
            module.training and buffer.dim() == 1 and buffer.is_floating_point()
            for _, module in named_modules
            for buffer in module._buffers.values()
            if buffer is not None
        ]
        self._always_copied = {index for index, is_one in enumerate(could_be_statistics) if is_one}
        # The first dictionary is for the original module. If an overridden `replicate` has left a
        # submodule out of a replica, the replica's dictionary lacks the submodule's buffers.
        self._slots: list[_BufferSlots] = [
            {
                index: (buffers, key)
                for index, (name, key) in enumerate(keys)
                if (buffers := _find_buffers(root, name)) is not None
            }
            for root in (self._root, *replicas)
        ]
        self._save_states()
        # The buffers of each module of the replicas, and whether each of them is None at first. A
        # script module has no dictionary: no buffer of it is None, and none can be registered.
        self._dicts: list[dict[str, Tensor | None]] = [
            buffers
            for root in replicas
            for name, _ in named_modules
            if isinstance(buffers := getattr(_find_module(root, name), "_buffers", None), dict)
        ]
        self._original_nones = [
            {name: buffer is None for name, buffer in buffers.items()} for buffers in self._dicts
        ]
        self._flat_buffers = flat_buffers(self._dicts)
        self._parameters = [module._parameters for root in replicas for module in root.modules()]
        self._flat_parameters = flat_members(self._parameters)

    def have_other_parameters(self) -> bool:
        """Return whether a forward has added, replaced or removed parameters of a replica."""
        return flat_members(self._parameters) != self._flat_parameters

    def update_buffers(self) -> None:
        """Replace each buffer that has changed in the module or in a replica.

        Afterwards the buffers equal those of newly built replicas. The buffers of the first
        replica are the module's own.
        """
        self._reset_names()
        self._copy_changed_buffers()

    def _reset_names(self) -> None:
        """Remove the buffers that forwards have registered, and reset those that were None."""
        if flat_buffers(self._dicts) == self._flat_buffers:
            return
        for buffers, nones in zip(self._dicts, self._original_nones, strict=True):
            for name in buffers.keys() - nones.keys():
                del buffers[name]
            buffers.update((name, None) for name, is_none in nones.items() if is_none)

    def _copy_changed_buffers(self) -> None:
        indices = self._always_copied | {
            index
            for slots, tensors, states in zip(
                self._slots, self._read_buffers(), self._states, strict=True
            )
            for index in _changed_indices(slots, tensors, states)
        }
        if not indices:
            return
        # A buffer with several names is copied once to each device.
        changed = {id(buffer): buffer for buffer in map(self._source_buffer, indices)}
        if {buffer.device for buffer in changed.values()} - {self._targets[0]}:
            check_source(self._root, self._targets[0])
        sources = [*changed.values()]
        copies = call_with_inference_mode(False, lambda: detached_copies(sources, self._targets))
        for slots, tensors in zip(self._slots[1:], copies, strict=True):
            copies_by_id = dict(zip(changed, tensors, strict=True))
            for index, (buffers, key) in slots.items():
                copy = copies_by_id.get(id(self._source_buffer(index)))
                if copy is not None:
                    buffers[key] = copy
        self._save_states()

    def _source_buffer(self, index: int) -> Tensor:
        buffers, key = self._slots[0][index]
        source: Tensor = buffers[key]
        return source

    def _read_buffers(self) -> list[list[Tensor | None]]:
        return [[buffers.get(key) for buffers, key in slots.values()] for slots in self._slots]

    def _save_states(self) -> None:
        # Keep references to the tensors, so that no other object can get the same `id`.
        self._tensors = self._read_buffers()
        self._states = [*map(read_states, self._tensors)]


def _changed_indices(
    slots: _BufferSlots, tensors: Sequence[Tensor | None], before: States
) -> Iterator[int]:
    """Return the indices of the buffers whose state differs from the state in ``before``."""
    states = read_states(tensors)
    if states == before:
        return iter(())
    indices = [*slots]
    return (indices[each] for each in differing_indices(states, before))


class _AttributeBuffers:
    """A mapping of a module's buffers that reads and writes the attributes of the module.

    It is used for modules that define ``__setattr__``, for example script modules.
    """

    def __init__(self, module: Any) -> None:
        self._module = module

    def get(self, key: str) -> Any:
        return getattr(self._module, key, None)

    def __getitem__(self, key: str) -> Any:
        return getattr(self._module, key)

    def __setitem__(self, key: str, value: Tensor) -> None:
        setattr(self._module, key, value)


def _find_module(root: Any, name: str) -> Any:
    """Return the submodule ``name`` of ``root``; None if there is no submodule."""
    try:
        return attrgetter(name)(root) if name else root
    except AttributeError:
        return None


def _find_buffers(root: Any, name: str) -> Any:
    """Return a mapping of the buffers of the submodule ``name``; None if there is no submodule."""
    module = _find_module(root, name)
    if module is None:
        return None
    if isinstance(module, nn.Module) and type(module).__setattr__ is nn.Module.__setattr__:
        return module._buffers
    return _AttributeBuffers(module)


def _names_of_tensors(members: Mapping[str, Any]) -> list[str]:
    return [name for name, member in members.items() if member is not None]


def _stream_key(devices: Sequence[torch.device]) -> tuple[torch.Stream, ...]:
    """Return the current streams of ``devices``, as a key for cached replicas."""
    return (*current_stream_by_device(devices).values(),)
