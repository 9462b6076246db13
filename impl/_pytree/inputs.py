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
    Constant,
    FieldsBranch,
    KeyPath,
    Leaf,
    ListBranch,
    MappingBranch,
    NamedTupleBranch,
    Node,
    TupleBranch,
    field_names,
    format_path,
    is_dataclass_instance,
    is_named_tuple,
)
from .markers import SplitAlong, Whole
from .packed_sequence import PackedBranch, sequence_count
from .traversal import Level, traverse

__all__ = ["CopiedLeaf", "InputLeaves", "SplitLeaf", "remove_markers"]


class CopiedLeaf(Leaf):
    """A tensor that every replica gets whole."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


class SplitLeaf(Leaf):
    """A tensor, or a packed sequence, whose ``N`` rows or sequences are shared out."""

    __slots__ = ("dim", "extent", "path", "value")

    def __init__(self, value: Any, dim: int, extent: int, path: KeyPath) -> None:
        self.value = value
        self.dim = dim
        self.extent = extent
        self.path = path


class InputLeaves:
    """The leaves of nested arguments that are more than references.

    Attributes:
        splits: What is to be split.
        copied: What is to be copied whole.
        num_markers: The number of markers.
    """

    __slots__ = ("_open", "copied", "num_markers", "splits")

    def __init__(self) -> None:
        self.splits: list[SplitLeaf] = []
        self.copied: list[CopiedLeaf] = []
        self.num_markers = 0
        self._open: set[int] = set()

    def flatten(self, value: Any, dim: int | None, path: KeyPath) -> Node:
        """Take ``value`` apart.

        Args:
            value: Anything.
            dim: The dimension to split tensors at, None to copy them whole. A tensor without
                dimensions is copied whole in any case.
            path: How the caller wrote ``value``.

        Raises:
            IndexError: A tensor has no dimension ``dim``.
            RuntimeError: A nested tensor is ragged along ``dim``.
            RecursionError: Containers are nested deeper than the recursion limit. Dataclasses
                are not counted: one that leads back to itself is a reference there.
        """
        nodes: list[Node] = []
        traverse(_find_handler(value)(self, value, dim, path, nodes), self._open)
        return nodes[0]

    def _level(
        self,
        branch: type[Branch],
        value: Any,
        steps: Iterable[tuple[Any, Any]],
        dim: int | None,
        path: KeyPath,
        nodes: list[Node],
    ) -> Level:
        """Take the parts of ``value`` apart, then append the node of ``value`` to ``nodes``."""
        parts: list[Node] = []
        for step, part in steps:
            handler = _HANDLERS.get(type(part)) or _find_handler(part)
            below = handler(self, part, dim, (path, branch.spelling, step), parts)
            if below is not None:
                yield below
        nodes.append(branch(value, parts) if parts or value else Constant(value))

    def _flatten_constant(
        self, value: Any, dim: int | None, path: KeyPath, nodes: list[Node]
    ) -> None:
        nodes.append(Constant(value))

    def _flatten_tensor(
        self, value: Tensor, dim: int | None, path: KeyPath, nodes: list[Node]
    ) -> None:
        if dim is None or value.dim() == 0:
            nodes.append(self._copy(value))
        else:
            extent = value.size(dim)
            if not isinstance(extent, int) and value.layout is torch.jagged:
                raise RuntimeError(
                    f"{format_path(path)} cannot be split along its ragged dim {dim}"
                )
            nodes.append(self._split(value, dim, extent, path))

    def _split(self, value: Any, dim: int, extent: int, path: KeyPath) -> Node:
        split = SplitLeaf(value, dim, extent, path)
        self.splits.append(split)
        return split

    def _copy(self, tensor: Tensor) -> Node:
        copied = CopiedLeaf(tensor)
        self.copied.append(copied)
        return copied

    def _flatten_tuple(
        self, value: tuple[Any, ...], dim: int | None, path: KeyPath, nodes: list[Node]
    ) -> Level:
        return self._level(TupleBranch, value, enumerate(value), dim, path, nodes)

    def _flatten_list(
        self, value: list[Any], dim: int | None, path: KeyPath, nodes: list[Node]
    ) -> Level:
        return self._level(ListBranch, value, enumerate(value), dim, path, nodes)

    def _flatten_mapping(
        self, value: dict[Any, Any], dim: int | None, path: KeyPath, nodes: list[Node]
    ) -> Level:
        return self._level(MappingBranch, value, value.items(), dim, path, nodes)

    def _flatten_named_tuple(
        self, value: Any, dim: int | None, path: KeyPath, nodes: list[Node]
    ) -> Level:
        fields = zip(value._fields, value, strict=True)
        return self._level(NamedTupleBranch, value, fields, dim, path, nodes)

    def _flatten_fields(
        self, value: Any, dim: int | None, path: KeyPath, nodes: list[Node]
    ) -> Level:
        """Take a dataclass apart if there is anything in it to split, copy or unwrap."""
        if id(value) in self._open:
            # It holds itself: what was a reference before stays one.
            nodes.append(Constant(value))
            return
        self._open.add(id(value))
        before = self._found()
        fields = ((name, getattr(value, name)) for name in field_names(value))
        yield from self._level(FieldsBranch, value, fields, dim, path, nodes)
        self._open.remove(id(value))
        if self._found() == before:
            nodes[-1] = Constant(value)

    def _found(self) -> int:
        return len(self.splits) + len(self.copied) + self.num_markers

    def _flatten_packed(
        self, value: PackedSequence, dim: int | None, path: KeyPath, nodes: list[Node]
    ) -> None:
        if dim is None:
            nodes.append(PackedBranch(value, [self._copy(value.data)]))
        else:
            # Whatever `dim` is, sequences are what a packed sequence is a batch of.
            nodes.append(self._split(value, 0, sequence_count(value), path))

    def _flatten_whole(
        self, value: Whole[Any], dim: int | None, path: KeyPath, nodes: list[Node]
    ) -> Level | None:
        return self._flatten_marked(value.value, None, path, nodes)

    def _flatten_split_along(
        self, value: SplitAlong[Any], dim: int | None, path: KeyPath, nodes: list[Node]
    ) -> Level | None:
        return self._flatten_marked(value.value, value.dim, path, nodes)

    def _flatten_marked(
        self, value: Any, dim: int | None, path: KeyPath, nodes: list[Node]
    ) -> Level | None:
        """Take apart what a marker holds, in place of the marker."""
        self.num_markers += 1
        return _find_handler(value)(self, value, dim, path, nodes)


def remove_markers(value: Any) -> Any:
    """Give ``value`` with what its markers hold in their place; itself if it has none."""
    leaves = InputLeaves()
    root = leaves.flatten(value, None, "value")
    pieces: dict[Leaf, list[Any]] = {copied: [copied.tensor] for copied in leaves.copied}
    pieces.update((split, [split.value]) for split in leaves.splits)
    return root.unflatten(1, pieces)[0] if leaves.num_markers else value


_Handler = Callable[[InputLeaves, Any, int | None, KeyPath, list[Node]], Level | None]

#: By exact type, since a chain of `isinstance` for every leaf is what costs most.
_HANDLERS: dict[type, _Handler] = {
    Tensor: InputLeaves._flatten_tensor,
    nn.Parameter: InputLeaves._flatten_tensor,
    PackedSequence: InputLeaves._flatten_packed,
    tuple: InputLeaves._flatten_tuple,
    list: InputLeaves._flatten_list,
    dict: InputLeaves._flatten_mapping,
    Whole: InputLeaves._flatten_whole,
    SplitAlong: InputLeaves._flatten_split_along,
    **dict.fromkeys(
        [bool, int, float, complex, str, bytes, type(None)], InputLeaves._flatten_constant
    ),
}


def _find_handler(value: object) -> _Handler:
    for kind, handler in _HANDLERS.items():
        if isinstance(value, kind):
            is_named = kind is tuple and is_named_tuple(value)
            return InputLeaves._flatten_named_tuple if is_named else handler
    if is_dataclass_instance(value) and not isinstance(value, nn.Module):
        return InputLeaves._flatten_fields
    return InputLeaves._flatten_constant
