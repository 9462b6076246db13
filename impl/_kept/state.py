"""The state of a module and of its replicas, from which changes are seen before a forward."""

from collections import OrderedDict, defaultdict, deque
from collections.abc import Collection, Sequence
from itertools import chain
from operator import attrgetter, is_
from typing import Any

from torch import Tensor, nn

from .copies import CopiedTensors

#: The containers whose content is compared.
_CONTAINERS = (dict, OrderedDict, defaultdict, list, tuple, set, frozenset, deque)


class ReplicaSet(CopiedTensors):
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
        rows = [[_find_tensor(each, name) for name in self._names] for each in replicas[1:]]
        super().__init__([tensor for _, tensor in named.values()], rows)
        self._attributes = _Attributes(named_modules, self.sources, replicas)
        self._forward = forward
        #: The samples that later forwards have found changed; None before the second forward.
        self._noted: Tensor | None = None

    def has_state_of(self, module: nn.Module) -> bool:
        """Return whether ``module`` has the state from which the replicas were built."""
        return self._attributes.are_current(module) and self.is_current()

    def sample(self) -> None:
        """Note the tensors whose samples have changed. A forward is about to use their copies."""
        differences = self.samples.differences()
        self._noted = differences if self._noted is None else self._noted | differences

    def find_error(self, *, compares: bool) -> str | None:
        """Return a text if a forward has used old values. Wait for the devices."""
        if self._noted is None:
            return None
        found: int | None = next(iter(self.samples.find(self._noted)), None)
        if found is None and compares:
            # No forward has used old copies of a tensor whose change is seen now.
            found = self.find_unseen_change()
        if found is None:
            return None
        return (
            f"{self._names[found]!r} has changed while hold() kept copies of it, without a new "
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
        found: dict[int, Collection[Any]] = {id(vars(each)): vars(each) for each in tensors}
        for name, module in named_modules:
            states = [getattr(_find(each, name), "__dict__", {}) for each in replicas]
            for key, value in vars(module).items():
                # Replicas see a change of a container that they share with the module.
                if any(state.get(key) is not value for state in states):
                    _add_containers(value, found)
            # A forward may replace, add or delete tensors of its replica.
            for state in states:
                _add_containers(state.get("_parameters"), found)
                _add_containers(state.get("_buffers"), found)
        # Most dictionaries of hooks are empty. They are compared separately, which is faster.
        self._empty = [each for each in found.values() if not each]
        filled = [each for each in found.values() if each]
        self._dicts = [each for each in filled if isinstance(each, dict)]
        self._others = [each for each in filled if not isinstance(each, dict)]
        self._values, self._objects = self._read()

    def are_current(self, root: nn.Module) -> bool:
        """Return whether ``root`` has the same attributes as before."""
        if root is not self._modules[0] or any(self._empty):
            return False
        values, objects = self._read()
        return values == self._values and all(map(is_, objects, self._objects))

    def _read(self) -> tuple[list[Any], list[Any]]:
        """Return sizes and names of attributes, and the objects to compare by identity."""
        dicts = [*map(vars, self._modules), *self._dicts]
        return (
            [
                *map(len, dicts),
                *map(len, self._others),
                *chain.from_iterable(map(vars, self._modules)),
            ],
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


def _find(root: Any, name: str) -> Any:
    """Return the member ``name`` of ``root``; None if there is none."""
    try:
        return attrgetter(name)(root) if name else root
    except AttributeError:
        return None


def _find_tensor(root: Any, name: str) -> Tensor | None:
    found = _find(root, name)
    return found if isinstance(found, Tensor) else None
