"""Containers of arguments and outputs, by kind."""

from collections import OrderedDict, UserDict, namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from spec_tests.harness.environment.topology import Topology
from spec_tests.strategies.calls import build

#: Keys of drawn mappings, in this order. They are not sorted and have several types.
KEYS = ("y", "x", 3, ("k", 1), None)

Pair = namedtuple("Pair", "second first")  # fields out of alphabetical order, on purpose


class Typed(NamedTuple):
    """A named tuple with a method and a default."""

    left: Any
    right: Any = 0

    def swapped(self) -> "Typed":
        """Return a tuple with the two fields exchanged."""
        return Typed(self.right, self.left)


class NoFields(NamedTuple):
    """A named tuple without fields."""


class ListSubclass(list):  # type: ignore[type-arg]  # members of any type
    """A subclass of list."""


class TupleSubclass(tuple):  # type: ignore[type-arg]  # members of any type
    """A subclass of tuple."""

    __slots__ = ()


class DictSubclass(dict):  # type: ignore[type-arg]  # members of any type
    """A subclass of dict with the constructor of dict."""


class CacheSequence(Sequence[Any]):
    """A sequence that is no list, constructed from an iterable, like caches in transformers."""

    def __init__(self, members: Iterable[Any]) -> None:
        self._members = tuple(members)

    def __getitem__(self, index: Any) -> Any:
        """Return the member at ``index``."""
        return self._members[index]

    def __len__(self) -> int:
        """Return the number of members."""
        return len(self._members)

    def __iter__(self) -> Iterator[Any]:
        """Return an iterator over the members."""
        return iter(self._members)


class Opaque:
    """An object that is no container."""

    def __repr__(self) -> str:
        return "Opaque()"


def _keyed(members: Sequence[Any]) -> dict[object, Any]:
    return dict(zip(KEYS, members, strict=False))


def _largest(members: Sequence[Any]) -> Any:
    # torch.max returns a tuple with named members that is no namedtuple.
    values, indices = members
    return torch.return_types.max((values, indices))


#: The function that makes a container of each kind from its members.
MAKERS: Mapping[str, Callable[[Sequence[Any]], Any]] = {
    "list": list,
    "tuple": tuple,
    "dict": _keyed,
    "OrderedDict": lambda members: OrderedDict(_keyed(members)),
    "Pair": lambda members: Pair(*members),
    "Typed": lambda members: Typed(*members),
    "ListSubclass": ListSubclass,
    "TupleSubclass": TupleSubclass,
    "DictSubclass": lambda members: DictSubclass(_keyed(members)),
    "CacheSequence": CacheSequence,
    "max": _largest,
    "UserDict": lambda members: UserDict(_keyed(members)),
}
#: Kinds with a fixed number of members.
ARITY = {"Pair": 2, "Typed": 2, "max": 2}
#: The kinds of mappings; the ``repr`` of a mapping shows its keys.
MAPPINGS = ("dict", "OrderedDict", "DictSubclass", "UserDict")


@dataclass(frozen=True)
class Container:
    """A description of a container. Each `build` makes a new, equal container."""

    kind: str
    members: tuple[object, ...]

    def build(self, topology: Topology) -> Any:
        """Return the container with built members."""
        return MAKERS[self.kind]([build(member, topology) for member in self.members])

    def __repr__(self) -> str:
        if self.kind in MAPPINGS:
            text = repr(_keyed(self.members))
        elif self.kind in ("Pair", "Typed"):
            text = f"({', '.join(map(repr, self.members))})"
        else:
            text = repr(list(self.members) if self.kind != "tuple" else self.members)
        return text if self.kind in ("list", "tuple", "dict") else f"{self.kind}{text}"


@dataclass(frozen=True)
class NewObject:
    """A description of an object that scatter does not split. Each `build` makes a new one."""

    kind: str

    def build(self, topology: Topology) -> Any:
        """Return the object; tensors in it are on the first device."""
        tensor = torch.arange(4, device=topology.device(0))
        makers: dict[str, Callable[[], Any]] = {
            "Opaque()": Opaque,
            "[]": list,
            "()": tuple,
            "{}": dict,
            "OrderedDict()": OrderedDict,
            "ListSubclass()": ListSubclass,
            "{1, 2}": lambda: {1, 2},
            "{arange(4)}": lambda: {tensor},
            "UserDict(a=arange(4))": lambda: UserDict(a=tensor),
            "CacheSequence([arange(4)])": lambda: CacheSequence([tensor]),
        }
        return makers[self.kind]()

    def __repr__(self) -> str:
        return self.kind


#: Empty containers: scatter and gather return them unchanged.
EMPTY = ("[]", "()", "{}", "OrderedDict()", "ListSubclass()")
#: Objects that scatter does not look into, even if they hold tensors.
OPAQUE = (
    "Opaque()",
    "{1, 2}",
    "{arange(4)}",
    "UserDict(a=arange(4))",
    "CacheSequence([arange(4)])",
)
#: Immutable values, which are compared by equality.
CONSTANTS = (None, 7, "text", True, 2.5, b"bytes", "", range(3), torch.float16, ...)
