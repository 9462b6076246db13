"""Replicas that are kept inside ``with wrapper.hold()``.

Before each forward the state of the module is compared with that of the time when the replicas
were built. After a change they are built again. A change that the state does not show is found by
samples, or when the block ends, and is an error then.
"""

import atexit
import gc
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from operator import attrgetter, is_
from typing import Any, Self

import torch
from torch import Tensor, nn

from ._copies import find_states
from ._copy_cache import CopyCache, CopyEntry, find_comparable, find_device_streams
from ._module_tree import Tree, collect_tree, has_members_outside_dict, is_script_module
from ._references import CONTAINERS
from ._torch_private import (
    call_with_inference_mode,
    has_modes_or_transforms,
    hook_count,
    hook_dicts,
    version_counters,
)


class ReplicaEntry(CopyEntry):
    """Replicas of a module, and the state from which the forward ``forward`` has built them."""

    def __init__(self, module: nn.Module, replicas: Sequence[Any], forward: int) -> None:
        named_modules = [*module.named_modules()]
        # A tensor with several names has one copy.
        named = {
            id(tensor): (f"{prefix}.{name}" if prefix else name, tensor)
            for prefix, owner in named_modules
            for name, tensor in chain(owner._parameters.items(), owner._buffers.items())
            if tensor is not None
        }
        self.replicas = replicas
        self._names = [name for name, _ in named.values()]
        # The first replica has the tensors themselves.
        copies = [[_find_tensor(each, name) for name in self._names] for each in replicas[1:]]
        super().__init__([tensor for _, tensor in named.values()], copies)
        self._attributes = _Attributes(named_modules, self.sources, replicas)
        self._forward = forward
        #: Whether later forwards have used the replicas, and whether the last took no samples.
        self._is_reused, self._lacks_sample = False, False
        #: The samples that later forwards have found changed, if they have taken any.
        self._noted: Tensor | None = None

    def has_state_of(self, module: nn.Module) -> bool:
        """Return whether ``module`` has the state from which the replicas were built."""
        return self._attributes.are_current(module) and self.is_current()

    def seems_current(self, module: nn.Module) -> bool:
        """Return whether ``module`` seems to have that state, by a cheaper check.

        It does not see a new layout at the same address, another name of an attribute, a hook
        without a handle, the first attribute of a tensor, and changes of the replicas.
        """
        return self._attributes.seem_current(module) and self.sources_seem_unchanged()

    def note_use(self, *, samples: bool) -> None:
        """Note that a forward is about to use the copies, and which ``samples`` have changed."""
        self._is_reused, self._lacks_sample = True, not samples
        if samples and self.sources:
            differences = self.samples.differences()
            self._noted = differences if self._noted is None else self._noted | differences

    def find_error(self, *, compares: bool) -> str | None:
        """Return a text if a forward has used old values. Wait for the devices."""
        if not self._is_reused:
            return None
        noted = [] if self._noted is None else self.samples.find(self._noted)
        if self._lacks_sample:
            seen = self.find_seen_changes()
            changed = self.samples.find(self.samples.differences())
            noted += [index for index in changed if index not in seen] + self.find_reshaped()
        first: int | None = next(iter(noted), None)
        if first is None and compares:
            # No forward has used old copies of a tensor whose change is seen now.
            first = self.find_unseen_change()
        if first is None:
            return None
        return (
            f"{self._names[first]!r} has changed while hold() kept copies of it, without a new "
            "version, as by .data, NumPy, DLPack or a collective: outputs since forward "
            f"{self._forward + 1} of the block may be those of old values. Change it under "
            "torch.no_grad(), or outside of the block"
        )


class _Attributes:
    """The modules of a tree, and the attributes of modules and their tensors, by identity.

    The parameters and buffers of the replicas are compared, too. The state refers to the
    attributes, so that no other object can get the same identity.
    """

    def __init__(
        self,
        named_modules: Sequence[tuple[str, nn.Module]],
        tensors: Sequence[Tensor],
        replicas: Sequence[Any],
    ) -> None:
        self._modules = [module for _, module in named_modules]
        # The state beside a tensor, such as `quant_state`, is copied with it.
        states = list(chain.from_iterable(map(find_states, tensors)))
        of_modules: dict[int, Collection[Any]] = {
            id(vars(each)): vars(each) for each in (*self._modules, *tensors, *states)
        }
        of_replicas: dict[int, Collection[Any]] = {}
        in_states = chain.from_iterable(vars(each).values() for each in states)
        self._versioned = [
            each for each in in_states if isinstance(each, Tensor) and not each.is_inference()
        ]
        for name, module in named_modules:
            copies = [getattr(_find(each, name), "__dict__", {}) for each in replicas]
            for key, value in vars(module).items():
                # Replicas see a change of a container that they share with the module.
                if any(attributes.get(key) is not value for attributes in copies):
                    _add_containers(value, of_modules)
            # A forward may replace, add or delete tensors of its replica.
            for attributes in copies:
                _add_containers(attributes.get("_parameters"), of_replicas)
                _add_containers(attributes.get("_buffers"), of_replicas)
        # Some Pythons store attributes in the object itself, and not in its dictionary.
        self._containers = [*self._modules, *states, *of_modules.values(), *of_replicas.values()]
        self._dicts = [each for each in self._containers if isinstance(each, dict) and each]
        self._objects, self._versions = self._read()
        # Most containers are empty dictionaries of hooks, which change with the number of hooks.
        unused = {id(hooks) for each in self._modules for hooks in hook_dicts(each) if not hooks}
        unused.update(id(vars(each)) for each in tensors if not vars(each))
        # Tuples do not change, and an empty container has no members to compare.
        used = [each for key, each in of_modules.items() if key not in unused]
        self._empty = [each for each in used if type(each) in (dict, list, set) and not each]
        unread = {*map(id, self._empty)}.union(id(each) for each in used if type(each) is tuple)
        self._used = [*self._modules, *states, *[each for each in used if id(each) not in unread]]
        self._members = gc.get_referents(*self._used)
        self._hook_count = hook_count()

    def are_current(self, root: nn.Module) -> bool:
        """Return whether ``root`` has the same attributes as before."""
        if root is not self._modules[0]:
            return False
        count = hook_count()
        objects, versions = self._read()
        are_current = _are_same(objects, self._objects) and versions == self._versions
        if are_current:
            self._hook_count = count
        return are_current

    def seem_current(self, root: nn.Module) -> bool:
        """Return whether the attributes of ``root`` seem to be the same, by a cheaper check."""
        return (
            root is self._modules[0]
            and hook_count() == self._hook_count
            and not any(self._empty)
            and _are_same(gc.get_referents(*self._used), self._members)
            and version_counters(self._versioned) == self._versions
        )

    def _read(self) -> tuple[list[Any], list[object]]:
        """Return the objects to compare by identity, and versions."""
        # The garbage collector's list of members is faster than a loop over the containers, and
        # has the types of objects, but not all keys.
        members = gc.get_referents(*self._containers)
        members += chain.from_iterable(self._dicts)
        return members, version_counters(self._versioned)


def _are_same(objects: Sequence[Any], others: Sequence[Any]) -> bool:
    return len(objects) == len(others) and all(map(is_, objects, others))


def _add_containers(value: Any, containers: dict[int, Collection[Any]]) -> None:
    """Add ``value`` and the containers in it, also in partials, to ``containers``."""
    if type(value) is partial:
        value = (value.func, value.args, value.keywords, vars(value))
        for member in value:
            _add_containers(member, containers)
    elif type(value) in CONTAINERS and id(value) not in containers:
        containers[id(value)] = value
        for member in value.values() if isinstance(value, dict) else value:
            _add_containers(member, containers)


def _find(root: Any, name: str) -> Any:
    """Return the member ``name`` of ``root``; None if there is none."""
    try:
        return attrgetter(name)(root) if name else root
    except AttributeError:
        return None


def _find_tensor(root: Any, name: str) -> Tensor | None:
    member = _find(root, name)
    return member if isinstance(member, Tensor) else None


class ReplicaCache(CopyCache[ReplicaEntry]):
    """The replicas of one wrapper, kept while ``with`` blocks of ``hold`` are active."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks: set[object] = set()  # An object for each active block.
        self._forwards = 0
        self._errors: list[str] = []

    @classmethod
    def find_active(cls, wrapper: nn.Module) -> Self | None:
        """Return the replicas of ``wrapper``; None outside of :func:`keep_replicas`."""
        cache = cls.find(wrapper)
        return cache if cache is not None and cache.blocks else None

    def replicas(
        self,
        module: nn.Module,
        devices: Sequence[torch.device],
        build: Callable[[], Sequence[Any]],
        *,
        samples: bool = True,
    ) -> Sequence[Any]:
        """Return one replica with the current state of ``module`` for each device.

        If none are kept, or the module has changed, ``build`` builds them.
        """
        if torch.is_grad_enabled():
            raise RuntimeError(
                "Held replicas are detached, and grad mode is on: call the module under "
                "torch.no_grad(), or outside of hold()"
            )
        # Copies that a mode of the caller has made must not be used after its end.
        if has_modes_or_transforms():
            return build()
        streams = find_device_streams(devices)
        with self.lock:
            self._forwards += 1
            entry = self.entries.get(streams)
            if entry is not None:
                if entry.has_state_of(module):
                    entry.note_use(samples=samples)
                    return entry.replicas
                del self.entries[streams]
                self._errors += filter(None, [entry.find_error(compares=False)])
                del entry  # Free the old replicas first.
            if not _can_be_kept(collect_tree(module)):
                return build()
            # Leave inference mode, because the next forward may run outside of inference mode and
            # could not use inference tensors.
            self.entries[streams] = entry = call_with_inference_mode(
                False, lambda: ReplicaEntry(module, build(), self._forwards)
            )
            return entry.replicas

    def seem_current(self, module: nn.Module, replicas: Sequence[Any]) -> bool:
        """Return whether ``replicas`` are kept and seem current; if so, note a use of them."""
        if has_modes_or_transforms():
            return False
        with self.lock:
            for entry in self.entries.values():
                if entry.replicas is replicas and entry.seems_current(module):
                    self._forwards += 1
                    entry.note_use(samples=False)
                    return True
        return False

    def end(self, block: object) -> str | None:
        """End a block. A second call, after an interrupt of the first one, completes it.

        The last block frees all replicas. Return a text if a forward may have used old values.
        """
        with self.lock:
            self.blocks.discard(block)
            if self.blocks:
                return None
            entries, self.entries, self._forwards = self.entries, {}, 0
            errors, self._errors = self._errors, []
            errors += filter(None, [each.find_error(compares=True) for each in entries.values()])
        return errors[0] if errors else None


def _can_be_kept(tree: Tree) -> bool:
    """Return whether all changes of ``tree`` can be seen."""
    tensors = [*tree.parameters, *tree.buffers]
    return (
        not any(map(_is_opaque, tree.modules))
        and not any(buffer.is_inference() for buffer in tree.buffers)
        and len(find_comparable(tensors)) == len(tensors)
    )


def _is_opaque(module: nn.Module) -> bool:
    """Return whether ``module`` has attributes elsewhere, or changes buffers without a version.

    ``functional.batch_norm`` does so in training, with one-dimensional buffers.
    """
    return (
        is_script_module(module)
        or has_members_outside_dict(type(module))
        or (module.training and any(map(_may_be_statistic, module._buffers.values())))
    )


def _may_be_statistic(buffer: Tensor | None) -> bool:
    return buffer is not None and buffer.dim() == 1 and buffer.is_floating_point()


@contextmanager
def keep_replicas(wrapper: nn.Module) -> Iterator[None]:
    """Return a context manager that keeps the replicas of ``wrapper``. Blocks may be nested.

    The end of the outermost block reports a use of old values, by a warning after an exception.
    """
    kept = ReplicaCache.find_or_make(wrapper)
    block, is_complete = object(), False
    # An interrupt may skip the end of the block. Python then closes this generator when the
    # context manager is freed.
    try:
        kept.blocks.add(block)
        yield
        is_complete = True
    finally:
        try:
            text = kept.end(block)
        except BaseException:
            kept.end(block)
            raise
        if text is not None and not is_complete:
            warnings.warn(text, RuntimeWarning, stacklevel=3)
    if text is not None:
        raise RuntimeError(text)


@atexit.register
def _end_all_blocks() -> None:
    """End the blocks that are active when the program ends.

    Later, when Python frees their context managers, the operators that compare the module and its
    copies would abort the process.
    """
    for cache in [*ReplicaCache._by_wrapper.values()]:
        cache.blocks.clear()
        if text := cache.end(object()):
            warnings.warn(text, RuntimeWarning, stacklevel=1)
