"""The state of a module and of its replicas, from which changes are seen before a forward."""

from collections import OrderedDict, defaultdict, deque
from collections.abc import Collection, Sequence
from itertools import chain
from operator import attrgetter, is_
from typing import Any

from torch import Tensor, nn

from .._torch_private import version_counters
from .changes import Samples, find_difference, memory_of, read_layouts

#: The name of each module of a tree, and the module. The root is first.
NamedModules = Sequence[tuple[str, nn.Module]]
#: The containers whose content is compared.
_CONTAINERS = (dict, OrderedDict, defaultdict, list, tuple, set, frozenset, deque)


class Attributes:
    """The modules of a tree, and the attributes of modules and their tensors, by identity.

    The parameters and buffers of the replicas are compared, too.

    The state refers to the attributes, so that no other object can get the same identity.
    """

    def __init__(
        self,
        named_modules: NamedModules,
        tensors: Sequence[Tensor],
        replicas: Sequence[Any],
    ) -> None:
        self._modules = [module for _, module in named_modules]
        found: dict[int, Collection[Any]] = {id(vars(each)): vars(each) for each in tensors}
        for name, module in named_modules:
            twins = [getattr(_find(each, name), "__dict__", {}) for each in replicas]
            for key, value in vars(module).items():
                # Replicas see a change of a container that they share with the module.
                if any(twin.get(key) is not value for twin in twins):
                    _add_containers(value, found)
            # A forward may replace, add or delete tensors of its replica.
            for twin in twins:
                _add_containers(twin.get("_parameters"), found)
                _add_containers(twin.get("_buffers"), found)
        # Most dictionaries of hooks are empty. They are compared separately, which is faster.
        self._empty = [each for each in found.values() if not each]
        filled = [each for each in found.values() if each]
        self._dicts = [each for each in filled if isinstance(each, dict)]
        self._others = [each for each in filled if not isinstance(each, dict)]
        self._contents = self._read()

    def is_current(self, root: nn.Module) -> bool:
        """Return whether ``root`` has the same attributes as before."""
        if root is not self._modules[0] or any(self._empty):
            return False
        sizes, names, objects = self._read()
        sizes_before, names_before, objects_before = self._contents
        return (sizes, names) == (sizes_before, names_before) and all(
            map(is_, objects, objects_before)
        )

    def _read(self) -> tuple[list[int], list[Any], list[Any]]:
        """Return the sizes, the names of attributes, and the objects to compare by identity."""
        dicts = [*map(vars, self._modules), *self._dicts]
        return (
            [*map(len, dicts), *map(len, self._others)],
            [*chain.from_iterable(map(vars, self._modules))],
            [
                *map(type, self._modules),
                *chain.from_iterable(self._dicts),
                *chain.from_iterable(map(dict.values, dicts)),
                *chain.from_iterable(self._others),
            ],
        )


def _add_containers(value: Any, found: dict[int, Collection[Any]]) -> None:
    """Add ``value`` to ``found`` if it is a plain container, and the plain containers in it."""
    if type(value) in _CONTAINERS and id(value) not in found:
        found[id(value)] = value
        for member in value.values() if isinstance(value, dict) else value:
            _add_containers(member, found)


class CopiedTensors:
    """The parameters and buffers of a module, and their copies since the forward ``forward``."""

    def __init__(self, named_modules: NamedModules, replicas: Sequence[Any], forward: int) -> None:
        # A tensor with several names has one copy.
        named = {
            id(tensor): (f"{prefix}.{name}" if prefix else name, tensor)
            for prefix, module in named_modules
            for name, tensor in chain(module._parameters.items(), module._buffers.items())
            if tensor is not None
        }
        self._names = [name for name, _ in named.values()]
        self.sources = [tensor for _, tensor in named.values()]
        self._copies = [[_find_tensor(each, name) for name in self._names] for each in replicas]
        self._forward, self._is_reused = forward, False
        self._stepped: set[object] = set()
        self._samples = Samples(self.sources)
        # The first replica has the tensors themselves. Inference tensors have no version.
        self._versioned = [
            each
            for each in chain(self.sources, *self._copies[1:])
            if each is not None and not each.is_inference()
        ]
        self._layouts, self._versions = self._read()

    def note_step(self, memory: set[object]) -> None:
        """Note that an optimizer has changed the tensors with this memory."""
        self._stepped |= memory.intersection(map(memory_of, self.sources))

    def is_current(self) -> bool:
        """Return whether no tensor and no copy has changed visibly."""
        return not self._stepped and self._read() == (self._layouts, self._versions)

    def sample(self) -> None:
        """Note the tensors whose samples have changed. A forward is about to use their copies."""
        self._samples.note()
        self._is_reused = True

    def find_error(self, *, compares: bool) -> str | None:
        """Return a text if a forward has used old values."""
        noted = self._samples.find_noted()
        if not noted and compares and self._is_reused:
            noted = self._find_difference()
        if not noted:
            return None
        return (
            f"{self._names[noted[0]]!r} has changed while hold() kept copies of it, without a new "
            "version, as by .data, NumPy, DLPack or a collective: outputs since forward "
            f"{self._forward + 1} of the block may be those of old values. Change it under "
            "torch.no_grad(), or outside of the block"
        )

    def _find_difference(self) -> list[int]:
        """Return the index of a tensor whose copy on the last device has other bits, if any."""
        layouts, versions = self._read()
        columns = zip(self._versioned, self._versions, versions, strict=True)
        changed = {id(tensor) for tensor, before, now in columns if before != now}
        # Skip the tensors that have changed since the last forward, as a new version or a new
        # sample shows: no forward has used old copies of them.
        differing = {*self._samples.find_changed()}
        indices = [
            index
            for index, (source, copy) in enumerate(
                zip(self.sources, self._copies[-1], strict=True)
            )
            if index not in differing
            and layouts[index] == self._layouts[index]
            and changed.isdisjoint((id(source), id(copy)))
            and memory_of(source) not in self._stepped
            and copy is not None
            and (copy.shape, copy.dtype) == (source.shape, source.dtype)
        ]
        copies: list[Any] = [self._copies[-1][index] for index in indices]
        found = find_difference([self.sources[index] for index in indices], copies)
        return [] if found is None else [indices[found]]

    def _read(self) -> tuple[list[Any], list[object]]:
        return read_layouts(self.sources), version_counters(self._versioned)


def _find(root: Any, name: str) -> Any:
    """Return the member ``name`` of ``root``; None if there is none."""
    try:
        return attrgetter(name)(root) if name else root
    except AttributeError:
        return None


def _find_tensor(root: Any, name: str) -> Tensor | None:
    found = _find(root, name)
    return found if isinstance(found, Tensor) else None
