"""Dataclasses, and mappings with more than their members: the reference rebuilds neither."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st


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
