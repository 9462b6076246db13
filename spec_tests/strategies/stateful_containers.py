"""Dataclasses, and containers with attributes."""

from collections import Counter, OrderedDict, UserDict, UserList, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property, partial
from types import MethodType
from typing import Any, NamedTuple

import torch
from hypothesis import strategies as st
from torch import Tensor


@dataclass
class Batch:
    """A dataclass with a default, and two fields that its constructor does not take.

    The last field is never set.
    """

    rows: Any
    note: Any = None
    seen: Any = field(default=None, init=False)
    unset: Any = field(init=False, repr=False, compare=False)


@dataclass(frozen=True)
class Frozen:
    """A frozen dataclass."""

    first: Any
    second: Any


@dataclass
class KeywordOnly:
    """A dataclass whose constructor takes keywords only."""

    only: Any = field(kw_only=True)


# Containers with attributes. Each class has another reason why its attributes may be lost.


class Config(dict):  # type: ignore[type-arg]  # members of any type
    """A dictionary with an attribute."""

    note = "default"


class NamedTable(dict):  # type: ignore[type-arg]  # members of any type
    """A dictionary whose constructor takes a name before the pairs."""

    def __init__(self, name: str, pairs: Iterable[tuple[object, object]] = ()) -> None:
        super().__init__(pairs)
        self.name = name


class AttributeDict(dict):  # type: ignore[type-arg]  # members of any type
    """A dictionary whose items are its attributes."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.__dict__ = self


class SetItems(dict):  # type: ignore[type-arg]  # members of any type
    """A dictionary that sets each item as an attribute, too."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, value in self.items():
            setattr(self, name, value)


class Computed(dict):  # type: ignore[type-arg]  # members of any type
    """A dictionary that computes attributes from its items."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.rows = len(self["x"])
        self.total = self["x"].sum(0)
        self.owner = self


class Cached(dict):  # type: ignore[type-arg]  # members of any type
    """A dictionary that stores a computed value at the first access."""

    @cached_property
    def total(self) -> Tensor:
        """The sum of the rows."""
        total: Tensor = self["x"].sum(0)
        return total


class Keywords(dict):  # type: ignore[type-arg]  # members of any type
    """A dictionary whose constructor takes keywords only."""

    def __init__(self, **items: Any) -> None:
        super().__init__(items)
        self.rows = len(items["x"])


class Tree(dict):  # type: ignore[type-arg]  # members of any type
    """A dictionary that turns the dictionaries in it into trees with its option."""

    def __init__(self, items: Any, option: str = "default") -> None:
        pairs = dict(items).items()
        super().__init__((k, Tree(v, option) if isinstance(v, dict) else v) for k, v in pairs)
        self.option = option


@dataclass
class Option:
    """A value that equals others with the same name."""

    name: str = "default"
    scale: int = field(default=1, compare=False)


class Configured(dict):  # type: ignore[type-arg]  # members of any type
    """A dictionary that makes an option."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.option = Option()


class Doubled(OrderedDict[str, Any]):
    """An OrderedDict that doubles what is set."""

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, 2 * value)


class DoubledEncoding(UserDict[str, Any]):
    """A UserDict that doubles what is set."""

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, 2 * value)


class Halved(dict):  # type: ignore[type-arg]  # members of any type
    """A dictionary that halves what is read."""

    def __getitem__(self, key: str) -> Any:
        return super().__getitem__(key) / 2

    def items(self) -> Any:
        """Return the halved items."""
        return [(key, self[key]) for key in self]


class HalvedEncoding(UserDict[str, Any]):
    """A UserDict that halves what is read."""

    def __getitem__(self, key: str) -> Any:
        return super().__getitem__(key) / 2


class WithDefault(dict):  # type: ignore[type-arg]  # members of any type
    """A dictionary whose ``__dict__`` are its items, as those of munch, and that has a default."""

    default: Any

    def __init__(self, default: Any = None, **items: Any) -> None:
        super().__init__(items)
        object.__setattr__(self, "default", default)

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]  # a property
        return dict(self)

    def __getstate__(self) -> Any:
        """Return the default."""
        return [self.default]

    def __setstate__(self, state: Any) -> None:
        """Set the default."""
        object.__setattr__(self, "default", state[0])


class Slotted(dict):  # type: ignore[type-arg]  # members of any type
    """A dictionary with a slot."""

    __slots__ = ("extra",)
    extra: Tensor


class PrivatelySlotted(dict):  # type: ignore[type-arg]  # members of any type
    """A dictionary with a slot whose name Python mangles."""

    __slots__ = ("__extra",)

    @property
    def extra(self) -> Tensor:
        """The value of the slot."""
        return self.__extra

    @extra.setter
    def extra(self, value: Tensor) -> None:
        self.__extra = value


class Ordered(OrderedDict[str, Any]):
    """An OrderedDict that may have attributes."""


class Encoding(UserDict[str, Any]):
    """A UserDict that may have attributes, as the encodings of transformers."""


class Defaults(defaultdict[str, Any]):
    """A defaultdict that may have attributes."""


class Rows(list):  # type: ignore[type-arg]  # members of any type
    """A list that may have attributes."""


class Columns(tuple):  # type: ignore[type-arg]  # members of any type
    """A tuple that may have attributes."""


class Couple(tuple):  # type: ignore[type-arg]  # members of any type
    """A tuple whose class takes two arguments, and sets attributes."""

    def __new__(cls, first: Any, second: Any) -> "Couple":
        """Set the first argument, and its number of rows, as attributes."""
        couple = super().__new__(cls, (first, second))
        couple.first, couple.rows = first, len(first)  # type: ignore[attr-defined]
        return couple


class Vector(tuple):  # type: ignore[type-arg]  # members of any type
    """A tuple whose class takes each member as an argument."""

    __slots__ = ()

    def __new__(cls, *members: Any) -> "Vector":
        """Return a tuple of the arguments."""
        return super().__new__(cls, members)


class ScaledList(UserList[Tensor]):
    """A UserList whose class multiplies the members, by two if no factor is given."""

    def __init__(self, members: Iterable[Tensor] = (), factor: int = 2) -> None:
        super().__init__(member * factor for member in members)


class Window(deque[Any]):
    """A deque whose class takes its maximal length first."""

    def __init__(self, maxlen: int, members: Iterable[Any]) -> None:
        super().__init__(members, maxlen)
        self.read = self.__getitem__


class LongList(list):  # type: ignore[type-arg]  # members of any type
    """A list that claims to be longer."""

    def __len__(self) -> int:
        return super().__len__() + 1


class Point(NamedTuple):
    """The fields of `NamedPoint`."""

    x: Any


class NamedPoint(Point):
    """A named tuple that may have attributes."""


class ScaledPoint(Point):
    """A named tuple whose class multiplies its member, by two if no factor is given."""

    def __new__(cls, x: Tensor, factor: int = 2) -> "ScaledPoint":
        """Return a named tuple of the product."""
        return super().__new__(cls, x * factor)


class CountedPoint(Point):
    """A named tuple that counts its rows."""

    def __init__(self, x: Any) -> None:
        self.rows = len(x)


@dataclass
class Output(OrderedDict[str, Any]):
    """A dataclass that is a dictionary of its fields, as the outputs of transformers."""

    x: Any = None
    y: Any = None

    def __post_init__(self) -> None:
        pairs = {each.name: getattr(self, each.name) for each in fields(self)}
        if isinstance(self.x, Mapping):
            pairs = {"x": None, **self.x}
        for name, value in pairs.items():
            setattr(self, name, value)
            if value is not None:
                self[name] = value


@dataclass
class EmptyOutput(OrderedDict[str, Any]):
    """A dataclass that derives from a dictionary, and has no items."""

    x: Any
    y: Any = None


@dataclass
class Counted:
    """A dataclass that computes a field and an attribute from another field."""

    x: Any
    rows: int = field(init=False)

    def __post_init__(self) -> None:
        self.rows = len(self.x)
        self.total = self.x.sum(0)


@dataclass
class Named:
    """A dataclass without a tensor in its fields."""

    name: Any = None


def config(**members: Any) -> Config:
    """Return a `Config` whose attribute has been changed."""
    result = Config(members)
    result.note = "changed"
    return result


def named_table(**members: Any) -> NamedTable:
    """Return a `NamedTable` that has a name."""
    return NamedTable("name", members.items())


def default_dict(**members: Any) -> defaultdict[str, Any]:
    """Return a defaultdict of lists."""
    return defaultdict(list, members)


def counter(**members: Any) -> Counter[str]:
    """Return a Counter."""
    return Counter(members)


def cached(rows: Tensor) -> Cached:
    """Return a `Cached` whose value has been read."""
    result = Cached(x=rows)
    assert result.total.shape == rows.shape[1:]
    return result


def with_extras(value: Any, rows: Tensor) -> Any:
    """Return ``value`` with attributes: rows, nested rows, a tensor without rows, and a text."""
    for name, attribute in {
        "extra": rows + 1,
        "nested": [rows, {"rows": rows + 2, "name": None}],
        "constant": torch.arange(11, device=rows.device),
        "note": "changed",
    }.items():
        object.__setattr__(value, name, attribute)
    return value


def configured(rows: Tensor) -> Configured:
    """Return a `Configured` whose option has been changed, and that has a method of its own."""
    result = Configured(x=rows)
    result.option.scale = 5
    result.read = MethodType(Configured.get, result)  # type: ignore[attr-defined]
    return result


def slotted(kind: type[Slotted | PrivatelySlotted], rows: Tensor) -> Any:
    """Return a dictionary of class ``kind`` whose slot has rows."""
    result = kind(x=rows)
    result.extra = rows + 1
    return result


#: Functions that return a mapping with the given keyword arguments as members.
MAPPINGS: tuple[Callable[..., Any], ...] = (default_dict, counter, config, named_table)
#: Functions that return a container of rows. Its class makes all attributes from the items.
MAKE_ATTRIBUTES: dict[str, Callable[[Tensor], Any]] = {
    "self-dict": lambda rows: AttributeDict(x=rows, y=[rows]),
    "set-items": lambda rows: SetItems(x=rows, y=[rows]),
    "computed": lambda rows: Computed(x=rows),
    "cached": cached,
}
#: Functions that return a container of rows with other attributes.
CARRY_ATTRIBUTES: dict[str, Callable[[Tensor], Any]] = {
    "keywords": lambda rows: Keywords(x=rows),
    "tree": lambda rows: Tree({"branch": {"x": rows}}, "changed"),
    "configured": configured,
    "doubled-OrderedDict": lambda rows: Doubled(x=rows),
    "doubled-UserDict": lambda rows: DoubledEncoding(x=rows),
    "halved-dict": lambda rows: Halved(x=2 * rows),
    "halved-UserDict": lambda rows: HalvedEncoding(x=2 * rows),
    "with-default": lambda rows: WithDefault(7, x=rows),
    "slot": partial(slotted, Slotted),
    "private-slot": partial(slotted, PrivatelySlotted),
    "dict": lambda rows: with_extras(Config(x=rows), rows),
    "set-items": lambda rows: with_extras(SetItems(x=rows), rows),
    "computed": lambda rows: with_extras(Computed(x=rows), rows),
    "other-arguments": lambda rows: with_extras(named_table(x=rows), rows),
    "OrderedDict": lambda rows: with_extras(Ordered(x=rows), rows),
    "UserDict": lambda rows: with_extras(Encoding(x=rows), rows),
    "defaultdict": lambda rows: with_extras(Defaults(list, x=rows), rows),
    "output": lambda rows: with_extras(Output(x=rows), rows),
    "empty-output": EmptyOutput,
    "dataclass": lambda rows: with_extras(Counted(rows), rows),
    "dataclass-without-tensors": lambda rows: with_extras(Named(), rows),
    "list": lambda rows: with_extras(Rows([rows]), rows),
    "tuple": lambda rows: with_extras(Columns([rows]), rows),
    "namedtuple": lambda rows: with_extras(NamedPoint(rows), rows),
    "tuple-of-two-arguments": lambda rows: Couple(rows, rows + 1),
    "counted-namedtuple": lambda rows: with_extras(CountedPoint(rows), rows),
    "deque": lambda rows: deque([rows], 3),
    "window": lambda rows: Window(3, [rows]),
    "tuple-of-arguments": lambda rows: Vector(rows, rows + 1),
    "scaled-UserList": lambda rows: ScaledList([rows], 1),
}
#: Functions that return a container of rows, whose class scatter keeps.
KEEP_CLASS: dict[str, Callable[[Tensor], Any]] = {
    "UserList": lambda rows: UserList([rows]),
    "long-list": lambda rows: LongList([rows]),
    "scaled-namedtuple": lambda rows: ScaledPoint(rows, 1),
    "max": lambda rows: torch.return_types.max((rows, rows + 1)),
    "Size": lambda rows: [rows, torch.Size([3])],
}


def contents(value: Any, containers: tuple[int, ...] = ()) -> Any:
    """Return the class, the items and the attributes of ``value``, and of all parts of it.

    ``containers`` has the ids of the containers of ``value``.
    """
    if isinstance(value, Tensor):
        return value.tolist()
    if id(value) in containers:
        return "its container"
    if hasattr(value, "__self__"):
        return "a method of its container" if id(value.__self__) in containers else "a method"
    objects = Named | Counted | Option
    if not isinstance(value, Mapping | list | tuple | deque | UserList | objects):
        return value
    within = partial(contents, containers=(*containers, id(value)))
    if isinstance(value, objects):
        parts: Sequence[Any] = []
    else:
        parts = list(value.items() if isinstance(value, Mapping) else enumerate(value))
    # Attributes that are not in the dictionary of an object.
    names = ("maxlen", "default_factory", "extra", "total", "default")
    attributes = {name: getattr(value, name, None) for name in names}
    attributes.update(getattr(value, "__dict__", {}))
    attributes.pop("data", None)  # The items of a UserDict or UserList.
    return [
        type(value),
        [(key, within(part)) for key, part in parts],
        {name: within(part) for name, part in attributes.items()},
    ]


def batches(leaf: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Draw dataclasses, possibly nested. Shrinks to one dataclass with one leaf."""
    inner = st.recursive(leaf, _dataclasses_and_lists, max_leaves=3)
    return st.builds(Batch, inner) | _dataclasses(inner)


def _dataclasses(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return (
        st.builds(Batch, inner, st.none() | inner)
        | st.builds(Frozen, inner, inner)
        | st.builds(KeywordOnly, only=inner)
    )


def _dataclasses_and_lists(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return _dataclasses(inner) | st.lists(inner, min_size=1, max_size=2)
