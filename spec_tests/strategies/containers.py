"""The kinds of containers in arguments and outputs."""

from collections import OrderedDict, UserDict, namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy  # noqa: F401  # used by the code of `NewObject`
import torch

from spec_tests.machine.devices import Topology
from spec_tests.strategies.calls import build

#: Keys of drawn mappings, in insertion order. They are not sorted and have several types.
KEYS = ("y", "x", 3, ("k", 1), None)

# The fields are not in alphabetical order, because a target must not sort them.
Pair = namedtuple("Pair", "second first")


class Typed(NamedTuple):
    """A typing.NamedTuple with a method and a default."""

    left: Any
    right: Any = 0

    def swapped(self) -> "Typed":
        """Return a tuple with the two fields exchanged."""
        return Typed(self.right, self.left)


class OneArgument(Pair):
    """A named tuple whose constructor has one parameter."""

    __slots__ = ()

    def __new__(cls, members: Iterable[Any]) -> "OneArgument":
        """Return a tuple of two members."""
        return super().__new__(cls, *members)


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
    """A sequence that is neither list nor tuple, like the caches of transformers."""

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
    """An object that is not a container."""

    def __repr__(self) -> str:
        return "Opaque()"


def with_note(error: Exception, note: str) -> Exception:
    """Return ``error`` with a note."""
    error.add_note(note)
    return error


def _to_dict(members: Sequence[Any]) -> dict[object, Any]:
    return dict(zip(KEYS, members, strict=False))


def _to_max_result(members: Sequence[Any]) -> Any:
    # The result of torch.max is a tuple with field names, but not a namedtuple.
    values, indices = members
    return torch.return_types.max((values, indices))


#: For each kind: the function that makes a container of this kind from its members.
MAKERS: Mapping[str, Callable[[Sequence[Any]], Any]] = {
    "list": list,
    "tuple": tuple,
    "dict": _to_dict,
    "OrderedDict": lambda members: OrderedDict(_to_dict(members)),
    "Pair": lambda members: Pair(*members),
    "Typed": lambda members: Typed(*members),
    "OneArgument": OneArgument,
    "ListSubclass": ListSubclass,
    "TupleSubclass": TupleSubclass,
    "DictSubclass": lambda members: DictSubclass(_to_dict(members)),
    "CacheSequence": CacheSequence,
    "max": _to_max_result,
    "UserDict": lambda members: UserDict(_to_dict(members)),
}
#: For each kind: the number of members, for kinds of containers with a fixed number.
ARITY = {"Pair": 2, "Typed": 2, "OneArgument": 2, "max": 2}
#: The kinds that are mappings.
MAPPINGS = ("dict", "OrderedDict", "DictSubclass", "UserDict")


@dataclass(frozen=True)
class Container:
    """A description of a container. Each call of ``build`` returns a new, equal container."""

    kind: str
    members: tuple[object, ...]

    def build(self, topology: Topology) -> Any:
        """Build the members and return a container of them."""
        return MAKERS[self.kind]([build(member, topology) for member in self.members])

    def __repr__(self) -> str:
        if self.kind in ("Pair", "Typed"):
            return f"{self.kind}({', '.join(map(repr, self.members))})"
        if self.kind == "max":
            return f"torch.return_types.max({self.members!r})"
        members = list(self.members) if self.kind != "tuple" else self.members
        text = repr(_to_dict(self.members) if self.kind in MAPPINGS else members)
        return text if self.kind in ("list", "tuple", "dict") else f"{self.kind}({text})"


@dataclass(frozen=True)
class NewObject:
    """A description of an object that scatter does not split. ``kind`` is code that makes it."""

    kind: str

    def build(self, topology: Topology) -> Any:
        """Return the object. Tensors in it are on the first device."""
        return eval(self.kind, {**globals(), "devices": topology.take(1)})

    def __repr__(self) -> str:
        return self.kind


#: Kinds of `NewObject`: empty containers. scatter and gather return them unchanged.
EMPTY = ("[]", "()", "{}", "OrderedDict()", "ListSubclass()")
#: Kinds of `NewObject` that scatter does not split, even if their members are tensors.
OPAQUE = (
    "Opaque()",
    "{1, 2}",
    "{torch.arange(4, device=devices[0])}",
    "UserDict(a=1)",
    "CacheSequence([torch.arange(4, device=devices[0])])",
    "numpy.arange(4)",
    "ValueError(torch.arange(4, device=devices[0]))",
    "with_note(KeyError('key'), 'note')",
    "Pair",
    "Container",
)
#: Immutable values. Tests compare them by equality, not by identity.
CONSTANTS = (
    None,
    7,
    "text",
    True,
    2.5,
    b"bytes",
    "",
    range(3),
    torch.float16,
    torch.device("cpu"),
    ...,
    -0.0,
    2**64,
    1j,
)
