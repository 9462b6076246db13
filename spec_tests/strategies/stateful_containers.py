"""Dataclasses and mappings with extra state. torch.nn.parallel does not rebuild them."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st


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


class Config(dict):  # type: ignore[type-arg]  # members of any type
    """A dictionary with an attribute."""

    note = "default"


class NamedTable(dict):  # type: ignore[type-arg]  # members of any type
    """A dictionary whose constructor takes a name before the pairs."""

    def __init__(self, name: str, pairs: Iterable[tuple[object, object]] = ()) -> None:
        super().__init__(pairs)
        self.name = name


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


#: Functions that return a mapping with the given keyword arguments as members.
MAPPINGS: tuple[Callable[..., Any], ...] = (default_dict, counter, config, named_table)


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
