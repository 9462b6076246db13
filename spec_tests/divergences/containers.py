"""Containers that the reference cannot rebuild, or does not look into."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from hypothesis import strategies as st

from spec_tests.harness.portrait import leaves
from spec_tests.harness.topology import Topology
from spec_tests.strategies.tensors import TensorSpec


@dataclass
class Batch:
    """A dataclass with a default, and a field that its constructor does not take."""

    rows: Any
    note: Any = None
    seen: Any = field(default=None, init=False)


@dataclass(frozen=True)
class Frozen:
    """A dataclass that refuses to be changed."""

    first: Any
    second: Any


@dataclass
class Keyed:
    """A dataclass whose constructor takes keywords only."""

    only: Any = field(kw_only=True)


class Config(dict):  # type: ignore[type-arg]  # members of any type
    """A dictionary with an attribute."""

    note = "as made"


class NamedTable(dict):  # type: ignore[type-arg]  # members of any type
    """A dictionary whose constructor takes something else first."""

    def __init__(self, name: str, pairs: Iterable[tuple[object, object]] = ()) -> None:
        super().__init__(pairs)
        self.name = name


def config(**members: Any) -> Config:
    """A `Config` whose attribute has been changed."""
    made = Config(members)
    made.note = "as changed"
    return made


def named_table(**members: Any) -> NamedTable:
    """A `NamedTable` that has a name."""
    return NamedTable("name", members.items())


def default_dict(**members: Any) -> defaultdict[str, Any]:
    """A dictionary that makes lists for the keys that it lacks."""
    return defaultdict(list, members)


def counter(**members: Any) -> Counter[str]:
    """A dictionary that counts, its keys not in the order of their counts."""
    return Counter(members)


#: Mappings by how they are made.
MAPPINGS: tuple[Callable[..., Any], ...] = (default_dict, counter, config, named_table)


def beyond_members(mapping: Any) -> object:
    """What the mapping holds beside its members: class, default factory, attributes."""
    return type(mapping), getattr(mapping, "default_factory", None), vars_of(mapping)


def vars_of(value: object) -> dict[str, object]:
    """The attributes of ``value``; none where it has no dictionary."""
    return dict(getattr(value, "__dict__", {}))


def batches(leaf: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Nested dataclasses, the outermost too. Shrinks to one with a single leaf."""
    inner = st.recursive(leaf, _dataclasses_and_lists, max_leaves=3)
    return st.builds(Batch, inner) | _dataclasses(inner)


def _dataclasses(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return (
        st.builds(Batch, inner, st.none() | inner)
        | st.builds(Frozen, inner, inner)
        | st.builds(Keyed, only=inner)
    )


def _dataclasses_and_lists(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return _dataclasses(inner) | st.lists(inner, min_size=1, max_size=2)


def made(value: Any, topology: Topology) -> Any:
    """``value`` with its tensors built; a batch has seen its rows."""
    if isinstance(value, TensorSpec):
        return value.build(topology)
    if isinstance(value, list):
        return [made(member, topology) for member in value]
    if not is_dataclass(value) or isinstance(value, type):
        return value
    members = {each.name: getattr(value, each.name) for each in fields(value) if each.init}
    built = type(value)(**{name: made(member, topology) for name, member in members.items()})
    if isinstance(built, Batch):
        built.seen = built.rows
    return built


def plain(value: Any) -> Any:
    """``value`` with a dictionary for every dataclass."""
    if isinstance(value, list):
        return [plain(member) for member in value]
    if not is_dataclass(value) or isinstance(value, type):
        return value
    return {each.name: plain(getattr(value, each.name)) for each in fields(value)}


def classes(value: object) -> list[type]:
    """The classes of ``value`` and of everything in it."""
    return [type(leaf) for _, leaf in leaves(value, "")]
