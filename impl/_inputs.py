"""Flattening of nested inputs, and the markers in them. Leaves are tensors to split or to copy."""

from collections import UserList, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Never, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from ._arguments import as_int
from ._attributes import Recipe
from ._batch_dims import is_cache
from ._containers import (
    BRANCHES,
    MEMORY_ERRORS,
    Branch,
    Constant,
    FieldsBranch,
    KeyPath,
    Leaf,
    MappingBranch,
    NamedTupleBranch,
    Node,
    RegisteredBranch,
    SequenceBranch,
    format_path,
    is_dataclass_instance,
    is_named_tuple,
    is_registered,
    is_tensor_dict,
    recipe_of,
)
from ._packed_sequences import PackedBranch, count_sequences
from ._torch_private import pytree_node

T = TypeVar("T")

#: The layouts of sparse tensors. PyTorch cannot split them.
SPARSE_LAYOUTS = frozenset(
    (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
)


# The markers of arguments that are not split along ``dim``.
#
# A marker may be anywhere in a nested argument, and may contain a nested value. It applies to
# every tensor in this value. If several markers contain a tensor, the innermost one applies.
# Modules receive the values of the markers, never the markers.


@dataclass(frozen=True, slots=True, eq=False)
class Whole(Generic[T]):
    """An argument that every replica receives whole.

    The gradients of all copies are summed on the device of the original.

    Args:
        value: A tensor, or any nested value. Its tensors are copied, not split. The first replica
            on the device of a tensor shares the memory of the tensor; every other replica has a
            copy. Tensors of all sparse layouts are allowed if they do not require grad.
    """

    value: T


@dataclass(frozen=True, slots=True, eq=False)
class SplitAlong(Generic[T]):
    """An argument that is split along another dimension than the other arguments.

    Args:
        value: A tensor, or any nested value whose tensors are all split along ``dim``.
        dim: The dimension to split. Negative values count from the last one.

    Raises:
        TypeError: ``dim`` is not an int.
    """

    value: T
    dim: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "dim", as_int("dim", self.dim))


# The leaves, and the nodes of containers.


@dataclass(slots=True, eq=False)
class CopiedLeaf(Leaf):
    """A tensor that every replica receives whole."""

    tensor: Tensor

    @property
    def device(self) -> torch.device:
        return self.tensor.device


@dataclass(slots=True, eq=False)
class SplitLeaf(Leaf):
    """A tensor, packed sequence or TensorDict that is split over the replicas.

    A tensor in an attribute of a container is copied instead if it has not the rows of the batch.
    """

    value: Any
    dim: int
    extent: int  # The number of rows along ``dim``, or of sequences.
    path: KeyPath

    @property
    def tensor(self) -> Any:
        """The tensor, the TensorDict, or the rows of the packed sequence."""
        return self.value.data if isinstance(self.value, PackedSequence) else self.value

    @property
    def device(self) -> torch.device:
        device: torch.device = self.tensor.device
        return device


class _PackedAttributeBranch(PackedBranch):
    """The node of a packed sequence in an attribute. Its part is a chunk, or a copy of rows."""

    __slots__ = ()

    def build(self, parts: tuple[Any, ...]) -> PackedSequence:
        (part,) = parts
        return part if isinstance(part, PackedSequence) else super().build(parts)


class _InputSequenceBranch(SequenceBranch):
    """The node of a sequence of another class than list and tuple."""

    __slots__ = ()

    def build(self, parts: tuple[Any, ...]) -> Any:
        """Build a sequence of the template's class, or a plain one if that is not possible."""
        try:
            return SequenceBranch.build(self, parts)
        except ValueError:  # For example, a class of C, such as `torch.Size`.
            return parts if isinstance(self.template, tuple) else list(parts)


class _OtherMappingBranch(MappingBranch):
    """The node of a mapping that is not a dict. ``build`` calls its class with a dict."""

    __slots__ = ()

    @staticmethod
    def items(value: Any) -> Iterable[tuple[Any, Any]]:
        try:
            return MappingBranch.items(value)
        except MEMORY_ERRORS:
            raise
        except Exception:
            # For example, a configuration with a missing value: pass it by reference.
            return ()

    def build(self, parts: tuple[Any, ...]) -> Any:
        """Build a mapping of the template's class."""
        built = MappingBranch.build(self, parts)
        if len(built) != len(parts):
            raise ValueError(f"it has {len(built)} items, not {len(parts)}")
        return built


def _refuse_to_rebuild(branch: type[Branch], kind: str, path: KeyPath, error: Exception) -> Never:
    """Raise TypeError for a container of the class ``kind`` that cannot be rebuilt."""
    if branch is RegisteredBranch:
        text = (
            "cannot be rebuilt for each replica by its unflatten function of torch.utils._pytree"
        )
    else:
        text = (
            f"with tensors cannot be rebuilt for each replica, because {kind}(dict) does not "
            "return its items: pass a dict"
        )
    raise TypeError(f"{format_path(path)}: a {kind} {text}") from error


class InputLeaves:
    """The leaves of flattened inputs.

    Args:
        device: The device of the only replica. Objects of registered classes whose tensors are all
            there are constants. So a module on one device fills the caller's cache, as with
            torch.nn.parallel.
        is_one_chunk: Whether there is only one replica, so that no tensor needs to be split.
    """

    __slots__ = (
        *("_attribute_depth", "_is_one_chunk", "_only_device", "_open"),
        *("attributes", "copied", "num_markers", "splits"),
    )

    def __init__(self, device: torch.device | None = None, *, is_one_chunk: bool = False) -> None:
        self._only_device, self._is_one_chunk = device, is_one_chunk
        self.splits: list[SplitLeaf] = []
        self.copied: list[CopiedLeaf | SplitLeaf] = []
        #: The tensors in attributes of containers that :meth:`sort_attributes` sorts.
        self.attributes: list[SplitLeaf] = []
        self.num_markers = 0
        # The ids of the objects and mappings, except dicts, that contain the part that is being
        # flattened, and of all containers that are in an attribute or have attributes.
        self._open: set[int] = set()
        self._attribute_depth = 0  # The number of attributes that contain the part.

    def flatten(self, value: Any, dim: int | None, path: KeyPath) -> Node:
        """Flatten ``value``, called ``path`` in error messages, and add its leaves to this object.

        Tensors are split along ``dim``, or copied if ``dim`` is None or the tensor is 0-dim.

        Raises:
            IndexError: A tensor or TensorDict has no dimension ``dim``.
            RuntimeError: A nested tensor is ragged along ``dim``.
            NotImplementedError: A sparse tensor is to be split into several chunks.
            RecursionError: Containers are nested deeper than the recursion limit, or a list,
                tuple or dictionary contains itself.
        """
        handler = _INPUT_HANDLERS.get(type(value)) or _input_handler(value)
        return handler(self, value, dim, path)

    def sort_attributes(self) -> None:
        """Split the tensors in attributes that have the rows of the batch, and copy the others.

        Call it after all values are flattened.
        """
        rows = {split.extent for split in self.splits or self.attributes[:1]}
        for leaf in self.attributes:
            (self.splits if leaf.extent in rows else self.copied).append(leaf)
        self.attributes.clear()

    def _flatten_constant(self, value: Any, dim: int | None, path: KeyPath) -> Node:
        return Constant(value)

    def _flatten_cache(self, value: Any, dim: int | None, path: KeyPath) -> Node:
        """Refuse a cache of a model whose class is not registered, for several replicas."""
        if dim is None or self._only_device is not None:
            return Constant(value)
        raise TypeError(
            f"{format_path(path)}: a {type(value).__name__} would be one object in all replicas, "
            "and mix their rows. Register its class with torch.utils._pytree: for DynamicCache "
            "call transformers.integrations.executorch.register_dynamic_cache_export_support()"
        )

    def _flatten_tensor(self, value: Tensor, dim: int | None, path: KeyPath) -> Node:
        if dim is None or value.dim() == 0:
            return self._add_copied(value)
        if self._attribute_depth:
            return self._flatten_attribute_tensor(value, dim, path)
        extent = value.size(dim)
        if self._is_one_chunk and (value.layout is not torch.strided or value.is_nested):
            return self._add_copied(value)  # PyTorch cannot split such tensors, or not all.
        if value.layout is not torch.strided:
            _check_layout(value, dim, path)
        return self._add_split(value, dim, extent, path)

    def _flatten_attribute_tensor(self, value: Tensor, dim: int, path: KeyPath) -> Node:
        if value.layout in SPARSE_LAYOUTS or not -value.dim() <= dim < value.dim():
            return self._add_copied(value)
        extent = value.size(dim)
        if not isinstance(extent, int):
            return self._add_copied(value)  # The ragged dimension of a nested tensor.
        self.attributes.append(SplitLeaf(value, dim, extent, path))
        return self.attributes[-1]

    def _flatten_packed(self, value: PackedSequence, dim: int | None, path: KeyPath) -> Node:
        if dim is None:
            return PackedBranch(value, [self._add_copied(value.data)])
        # A packed sequence is a batch of sequences, so it is always split by sequence.
        extent = count_sequences(value)
        if self._attribute_depth:
            self.attributes.append(SplitLeaf(value, 0, extent, path))
            return _PackedAttributeBranch(value, [self.attributes[-1]])
        return self._add_split(value, 0, extent, path)

    def _flatten_container(self, value: Any, dim: int | None, path: KeyPath) -> Node:
        # Use one stack frame per level, so that nesting may be as deep as in torch.nn.parallel.
        if self._attribute_depth:
            if id(value) in self._open:
                return Constant(value)  # The attribute refers to a container that contains it.
            self._open.add(id(value))
        branch, recipe = BRANCHES.get(type(value)), None
        if branch is None:
            branch = _input_branch(value)
            recipe = recipe_of(value, branch)
        children: list[Node] = []
        for step, part in branch.items(value):
            handler = _INPUT_HANDLERS.get(type(part)) or _input_handler(part)
            children.append(handler(self, part, dim, (path, branch.step_format, step)))
        is_empty = not (branch is RegisteredBranch or children or value)
        if recipe is not None:
            num_leaves = self._num_leaves()
            children += self._flatten_attributes(value, recipe, children, dim, path)
            is_empty = is_empty and self._num_leaves() == num_leaves
        if self._attribute_depth:
            self._open.discard(id(value))
        return Constant(value) if is_empty else branch(value, children, recipe=recipe)

    def _flatten_attributes(
        self, value: Any, recipe: Recipe, parts: Sequence[Node], dim: int | None, path: KeyPath
    ) -> list[Node]:
        """Return the nodes of the carried attributes of ``value``; ``parts`` are of its items."""
        nodes = []
        known = dict(zip(map(id, recipe.parts), parts, strict=True))
        is_open = id(value) in self._open
        self._open.add(id(value))
        for name in recipe.carried:
            attribute, step = recipe.attributes[name], (path, ".{}", name)
            node = known.get(id(attribute))
            if node is None:
                node = self._flatten_attribute(attribute, dim, step)
            nodes.append(node)
        if not is_open:
            self._open.discard(id(value))
        return nodes

    def _flatten_attribute(self, attribute: Any, dim: int | None, path: KeyPath) -> Node:
        num_leaves, opened = self._num_leaves(), self._open.copy()
        self._attribute_depth += 1
        try:
            return self.flatten(attribute, dim, path)
        except RecursionError:
            self._drop_leaves(num_leaves)
            self._open = opened
            return Constant(attribute)
        finally:
            self._attribute_depth -= 1

    def _num_leaves(self) -> tuple[int, int, int]:
        return len(self.splits), len(self.copied), len(self.attributes)

    def _drop_leaves(self, num_leaves: tuple[int, int, int]) -> None:
        """Drop the leaves that were added after :meth:`_num_leaves` returned ``num_leaves``."""
        for leaves, count in zip(
            (self.splits, self.copied, self.attributes), num_leaves, strict=True
        ):
            del leaves[count:]  # type: ignore[attr-defined] # three lists

    def _flatten_object(self, value: Any, dim: int | None, path: KeyPath) -> Node:
        """Flatten an object that is passed by reference if no replica needs one of its own."""
        if id(value) in self._open:
            return Constant(value)  # The object contains itself.
        num_leaves, num_markers = self._num_leaves(), self.num_markers
        is_outermost = not self._open
        self._open.add(id(value))
        try:
            node: Any = self._flatten_container(value, dim, path)
        except RecursionError:
            # As in torch.nn.parallel, pass deeply nested objects without tensors by reference.
            if not is_outermost or self._num_leaves() != num_leaves:
                raise
            return Constant(value)
        finally:
            self._open.discard(id(value))
        leaves = [
            *self.splits[num_leaves[0] :],
            *self.copied[num_leaves[1] :],
            *self.attributes[num_leaves[2] :],
        ]
        if self.num_markers == num_markers and not self._needs_copies(node, leaves):
            self._drop_leaves(num_leaves)
            return Constant(value)
        if isinstance(node, MappingBranch | RegisteredBranch):
            node.refuse = partial(_refuse_to_rebuild, type(node), type(value).__name__, path)
        return node  # type: ignore[no-any-return] # a Branch

    def _needs_copies(self, node: Node, leaves: Sequence[SplitLeaf | CopiedLeaf]) -> bool:
        """Return whether each replica needs an object of its own, with these leaves."""
        if not isinstance(node, RegisteredBranch):
            return bool(leaves)
        return not self._only_device or any(leaf.device != self._only_device for leaf in leaves)

    def _flatten_tensor_dict(self, value: Any, dim: int | None, path: KeyPath) -> Node:
        if dim is None or not value.batch_size:
            is_opaque = pytree_node(type(value)) is None  # For example, a stack of strings.
            return Constant(value) if is_opaque else self._flatten_object(value, dim, path)
        size = list(value.batch_size)
        if not -len(size) <= dim < len(size):
            raise IndexError(f"{format_path(path)} has the batch_size {size}, but no dim {dim}")
        return self._add_split(value, dim, size[dim], path)

    def _flatten_whole(self, value: Whole[Any], dim: int | None, path: KeyPath) -> Node:
        self.num_markers += 1
        return self.flatten(value.value, None, path)

    def _flatten_split_along(self, value: SplitAlong[Any], dim: int | None, path: KeyPath) -> Node:
        self.num_markers += 1
        # A marked tensor in an attribute is split, whatever its size.
        depth, self._attribute_depth = self._attribute_depth, 0
        try:
            return self.flatten(value.value, value.dim, path)
        finally:
            self._attribute_depth = depth

    def _add_split(self, value: Any, dim: int, extent: int, path: KeyPath) -> SplitLeaf:
        self.splits.append(SplitLeaf(value, dim, extent, path))
        return self.splits[-1]

    def _add_copied(self, tensor: Tensor) -> CopiedLeaf:
        leaf = CopiedLeaf(tensor)
        self.copied.append(leaf)
        return leaf


def _check_layout(tensor: Tensor, dim: int, path: KeyPath) -> None:
    """Check that ``tensor``, which is not strided, can be split along ``dim``."""
    if tensor.layout is torch.jagged and not isinstance(tensor.size(dim), int):
        raise RuntimeError(f"{format_path(path)} cannot be split along its ragged dim {dim}")
    if tensor.layout in SPARSE_LAYOUTS:
        raise NotImplementedError(
            f"{format_path(path)} has the layout {tensor.layout}, which PyTorch cannot split: "
            "mark it Whole, or make it dense"
        )


def find_tensors(value: Any, name: str) -> list[Any]:
    """Return the tensors in ``value``, also packed sequences and TensorDicts in ``SplitAlong``."""
    leaves = InputLeaves()
    leaves.flatten(value, None, name)
    leaves.sort_attributes()
    return [*(leaf.tensor for leaf in leaves.copied), *(leaf.value for leaf in leaves.splits)]


def remove_markers(value: Any) -> Any:
    """Return ``value`` with the values of its markers; without markers ``value`` itself."""
    leaves = InputLeaves()
    root = leaves.flatten(value, None, "value")
    leaves.sort_attributes()
    pieces: dict[Leaf, list[Any]] = {leaf: [leaf.tensor] for leaf in leaves.copied}
    pieces.update((leaf, [leaf.value]) for leaf in leaves.splits)
    return root.unflatten(1, pieces)[0] if leaves.num_markers else value


_Handler = Callable[[InputLeaves, Any, int | None, KeyPath], Node]

#: For each exact type: the method that flattens it. For most leaves this look-up saves a chain of
#: ``isinstance`` calls, which would take most of the time.
_INPUT_HANDLERS: dict[type, _Handler] = {
    Tensor: InputLeaves._flatten_tensor,
    nn.Parameter: InputLeaves._flatten_tensor,
    PackedSequence: InputLeaves._flatten_packed,
    tuple: InputLeaves._flatten_container,
    list: InputLeaves._flatten_container,
    dict: InputLeaves._flatten_container,
    deque: InputLeaves._flatten_object,
    UserList: InputLeaves._flatten_object,
    Whole: InputLeaves._flatten_whole,
    SplitAlong: InputLeaves._flatten_split_along,
    **dict.fromkeys(
        [bool, int, float, complex, str, bytes, type(None)], InputLeaves._flatten_constant
    ),
}


def _input_handler(value: object) -> _Handler:
    for kind, handler in _INPUT_HANDLERS.items():
        if isinstance(value, kind):
            return handler
    if isinstance(value, nn.Module):
        return InputLeaves._flatten_constant
    if is_tensor_dict(value):
        return InputLeaves._flatten_tensor_dict
    if is_registered(value) or is_dataclass_instance(value) or isinstance(value, Mapping):
        return InputLeaves._flatten_object
    if is_cache(type(value)):  # type: ignore[arg-type] # a class is hashable
        return InputLeaves._flatten_cache
    return InputLeaves._flatten_constant


def _input_branch(value: object) -> type[Branch]:
    if is_registered(value) or is_tensor_dict(value):
        return RegisteredBranch
    if is_named_tuple(value):
        return NamedTupleBranch
    if isinstance(value, dict):
        return MappingBranch
    if isinstance(value, tuple | list | deque | UserList):
        return _InputSequenceBranch
    return FieldsBranch if is_dataclass_instance(value) else _OtherMappingBranch
