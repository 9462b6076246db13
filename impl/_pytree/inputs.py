"""What nested arguments hold: tensors to split, tensors to copy whole, and the rest.

``N`` is the extent of a tensor along the dimension it is split at, ``k`` the number of devices.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from .containers import (
    Branch,
    FieldsBranch,
    Leaf,
    ListBranch,
    MappingBranch,
    NamedTupleBranch,
    Node,
    Same,
    Trail,
    TupleBranch,
    field_names,
    is_dataclass_instance,
    is_named_tuple,
    write_trail,
)
from .markers import SplitAlong, Whole
from .packed_sequence import PackedBranch, sequence_count
from .traversal import Level, descend

__all__ = ["Copied", "Split", "Survey", "unmarked"]


class Copied(Leaf):
    """A tensor that every replica gets whole."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


class Split(Leaf):
    """A tensor, or a packed sequence, whose ``N`` rows or sequences are shared out."""

    __slots__ = ("dim", "extent", "trail", "value")

    def __init__(self, value: Any, dim: int, extent: int, trail: Trail) -> None:
        self.value = value
        self.dim = dim
        self.extent = extent
        self.trail = trail


class Survey:
    """The leaves of nested arguments that are more than references.

    Attributes:
        splits: What is to be split.
        copied: What is to be copied whole.
        marks: The number of markers.
    """

    __slots__ = ("_open", "copied", "marks", "splits")

    def __init__(self) -> None:
        self.splits: list[Split] = []
        self.copied: list[Copied] = []
        self.marks = 0
        self._open: set[int] = set()

    def take(self, value: Any, dim: int | None, trail: Trail) -> Node:
        """Take ``value`` apart.

        Args:
            value: Anything.
            dim: The dimension to split tensors at, None to copy them whole. A tensor without
                dimensions is copied whole in any case.
            trail: How the caller wrote ``value``.

        Raises:
            IndexError: A tensor has no dimension ``dim``.
            RuntimeError: A nested tensor is ragged along ``dim``.
            RecursionError: Containers are nested deeper than the recursion limit. Dataclasses
                are not counted: one that leads back to itself is a reference there.
        """
        nodes: list[Node] = []
        descend(_find_take(value)(self, value, dim, trail, nodes), self._open)
        return nodes[0]

    def _level(
        self,
        branch: type[Branch],
        value: Any,
        steps: Iterable[tuple[Any, Any]],
        dim: int | None,
        trail: Trail,
        nodes: list[Node],
    ) -> Level:
        """Take the parts of ``value`` apart, then append the node of ``value`` to ``nodes``."""
        parts: list[Node] = []
        for step, part in steps:
            take = _TAKE.get(type(part)) or _find_take(part)
            below = take(self, part, dim, (trail, branch.spelling, step), parts)
            if below is not None:
                yield below
        nodes.append(branch(value, parts) if parts or value else Same(value))

    def _take_same(self, value: Any, dim: int | None, trail: Trail, nodes: list[Node]) -> None:
        nodes.append(Same(value))

    def _take_tensor(
        self, value: Tensor, dim: int | None, trail: Trail, nodes: list[Node]
    ) -> None:
        if dim is None or value.dim() == 0:
            nodes.append(self._copy(value))
        else:
            extent = value.size(dim)
            if not isinstance(extent, int) and value.layout is torch.jagged:
                raise RuntimeError(
                    f"{write_trail(trail)} cannot be split along its ragged dim {dim}"
                )
            nodes.append(self._split(value, dim, extent, trail))

    def _split(self, value: Any, dim: int, extent: int, trail: Trail) -> Node:
        split = Split(value, dim, extent, trail)
        self.splits.append(split)
        return split

    def _copy(self, tensor: Tensor) -> Node:
        copied = Copied(tensor)
        self.copied.append(copied)
        return copied

    def _take_tuple(
        self, value: tuple[Any, ...], dim: int | None, trail: Trail, nodes: list[Node]
    ) -> Level:
        return self._level(TupleBranch, value, enumerate(value), dim, trail, nodes)

    def _take_list(
        self, value: list[Any], dim: int | None, trail: Trail, nodes: list[Node]
    ) -> Level:
        return self._level(ListBranch, value, enumerate(value), dim, trail, nodes)

    def _take_mapping(
        self, value: dict[Any, Any], dim: int | None, trail: Trail, nodes: list[Node]
    ) -> Level:
        return self._level(MappingBranch, value, value.items(), dim, trail, nodes)

    def _take_named_tuple(
        self, value: Any, dim: int | None, trail: Trail, nodes: list[Node]
    ) -> Level:
        fields = zip(value._fields, value, strict=True)
        return self._level(NamedTupleBranch, value, fields, dim, trail, nodes)

    def _take_fields(self, value: Any, dim: int | None, trail: Trail, nodes: list[Node]) -> Level:
        """Take a dataclass apart if there is anything in it to split, copy or unwrap."""
        if id(value) in self._open:
            # It holds itself: what was a reference before stays one.
            nodes.append(Same(value))
            return
        self._open.add(id(value))
        before = self._found()
        fields = ((name, getattr(value, name)) for name in field_names(value))
        yield from self._level(FieldsBranch, value, fields, dim, trail, nodes)
        self._open.remove(id(value))
        if self._found() == before:
            nodes[-1] = Same(value)

    def _found(self) -> int:
        return len(self.splits) + len(self.copied) + self.marks

    def _take_packed(
        self, value: PackedSequence, dim: int | None, trail: Trail, nodes: list[Node]
    ) -> None:
        if dim is None:
            nodes.append(PackedBranch(value, [self._copy(value.data)]))
        else:
            # Whatever `dim` is, sequences are what a packed sequence is a batch of.
            nodes.append(self._split(value, 0, sequence_count(value), trail))

    def _take_whole(
        self, value: Whole[Any], dim: int | None, trail: Trail, nodes: list[Node]
    ) -> Level | None:
        return self._take_marked(value.value, None, trail, nodes)

    def _take_split_along(
        self, value: SplitAlong[Any], dim: int | None, trail: Trail, nodes: list[Node]
    ) -> Level | None:
        return self._take_marked(value.value, value.dim, trail, nodes)

    def _take_marked(
        self, value: Any, dim: int | None, trail: Trail, nodes: list[Node]
    ) -> Level | None:
        """Take apart what a marker holds, in place of the marker."""
        self.marks += 1
        return _find_take(value)(self, value, dim, trail, nodes)


def unmarked(value: Any) -> Any:
    """Give ``value`` with what its markers hold in their place; itself if it has none."""
    survey = Survey()
    root = survey.take(value, None, "value")
    pieces: dict[Leaf, list[Any]] = {copied: [copied.tensor] for copied in survey.copied}
    pieces.update((split, [split.value]) for split in survey.splits)
    return root.columns(1, pieces)[0] if survey.marks else value


_Take = Callable[[Survey, Any, int | None, Trail, list[Node]], Level | None]

#: By exact type, since a chain of `isinstance` for every leaf is what costs most.
_TAKE: dict[type, _Take] = {
    Tensor: Survey._take_tensor,
    nn.Parameter: Survey._take_tensor,
    PackedSequence: Survey._take_packed,
    tuple: Survey._take_tuple,
    list: Survey._take_list,
    dict: Survey._take_mapping,
    Whole: Survey._take_whole,
    SplitAlong: Survey._take_split_along,
    **dict.fromkeys([bool, int, float, complex, str, bytes, type(None)], Survey._take_same),
}


def _find_take(value: object) -> _Take:
    for kind, take in _TAKE.items():
        if isinstance(value, kind):
            is_named = kind is tuple and is_named_tuple(value)
            return Survey._take_named_tuple if is_named else take
    if is_dataclass_instance(value) and not isinstance(value, nn.Module):
        return Survey._take_fields
    return Survey._take_same
