"""Containers that hold what callers pass and modules return, by kind."""

from collections import OrderedDict, UserDict, namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from spec_tests.harness.environment.topology import Topology
from spec_tests.strategies.calls import build

#: Keys of drawn mappings, in this order: neither sorted nor of one type.
KEYS = ("y", "x", 3, ("k", 1), None)

Pair = namedtuple("Pair", "second first")  # fields out of alphabetical order, on purpose


class Typed(NamedTuple):
    """A named tuple with a method and a default."""

    left: Any
    right: Any = 0

    def swapped(self) -> "Typed":
        """The two fields exchanged."""
        return Typed(self.right, self.left)


class NoFields(NamedTuple):
    """A named tuple without fields."""


class ListSubclass(list):  # type: ignore[type-arg]  # members of any type
    """A subclass of list."""


class TupleSubclass(tuple):  # type: ignore[type-arg]  # members of any type
    """A subclass of tuple."""

    __slots__ = ()


class DictSubclass(dict):  # type: ignore[type-arg]  # members of any type
    """A subclass of dict that is made like one."""


class CacheSequence(Sequence[Any]):
    """An iterable that is no list, made from one iterable: as model caches of transformers are."""

    def __init__(self, members: Iterable[Any]) -> None:
        self._members = tuple(members)

    def __getitem__(self, index: Any) -> Any:
        """The member at ``index``."""
        return self._members[index]

    def __len__(self) -> int:
        """How many members there are."""
        return len(self._members)

    def __iter__(self) -> Iterator[Any]:
        """Every member in turn."""
        return iter(self._members)


class Opaque:
    """Something that nobody can look into."""

    def __repr__(self) -> str:
        return "Opaque()"


def _keyed(members: Sequence[Any]) -> dict[object, Any]:
    return dict(zip(KEYS, members, strict=False))


def _largest(members: Sequence[Any]) -> Any:
    # What torch.max returns: a tuple with names that is no namedtuple.
    values, indices = members
    return torch.return_types.max((values, indices))


#: How a container of a kind is made of its members.
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
#: Kinds of mappings, whose members are printed with their keys.
MAPPINGS = ("dict", "OrderedDict", "DictSubclass", "UserDict")


@dataclass(frozen=True)
class Container:
    """A container of some kind; equal descriptions make equal containers, new each time."""

    kind: str
    members: tuple[object, ...]

    def build(self, topology: Topology) -> Any:
        """The container, its members built too."""
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
    """Something that is no container of tensors, made anew for every run."""

    kind: str

    def build(self, topology: Topology) -> Any:
        """The object; tensors in it are on the first device."""
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


#: Empty containers: carried along as they are.
EMPTY = ("[]", "()", "{}", "OrderedDict()", "ListSubclass()")
#: Objects that are looked into by nobody, tensors inside or not.
OPAQUE = (
    "Opaque()",
    "{1, 2}",
    "{arange(4)}",
    "UserDict(a=arange(4))",
    "CacheSequence([arange(4)])",
)
#: Values that are equal and no more; None among them.
CONSTANTS = (None, 7, "text", True, 2.5, b"bytes", "", range(3), torch.float16, ...)
