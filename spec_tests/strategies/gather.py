"""Calls of gather: the replicas' outputs have one structure, and each holds a part of each tensor.

Calls in which the reference is wrong are not drawn; see `spec_tests.strategies.scatter_gather`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from hypothesis import strategies as st

from spec_tests.strategies.calls import DeviceAt, PublicCall
from spec_tests.strategies.containers import EMPTY, Container, NewObject
from spec_tests.strategies.scatter_gather import (
    DIMS,
    SPLIT,
    dtypes_along,
    nested_values,
    outer_extents,
)
from spec_tests.strategies.tensors import FLOATS, LAYOUTS, TensorSpec

#: The kinds of containers whose members gather joins.
JOINED = (*SPLIT, "CacheSequence", "max")


@dataclass(frozen=True)
class SplitTensor:
    """A tensor of which each replica returns a part.

    Args:
        before: The extents before the split dimension; None if the parts have no dimension.
        after: The extents after it; None if the parts have no dimension.
        dtype: The dtype.
        layout: One of `LAYOUTS`.
        requires_grad: Whether each part requires a gradient.
    """

    before: tuple[int, ...] | None
    after: tuple[int, ...] | None
    dtype: torch.dtype = torch.float32
    layout: str = "contiguous"
    requires_grad: bool = False

    def part(self, extent: int, slot: int | None) -> TensorSpec:
        """Return the part of one replica."""
        is_scalar = self.before is None or self.after is None
        shape = () if is_scalar else (*(self.before or ()), extent, *(self.after or ()))
        return TensorSpec(shape, self.dtype, self.layout, self.requires_grad, slot)


def output(template: object, extent: int, slot: int | None) -> object:
    """Return the output of a replica: ``template`` with the replica's part of every tensor."""
    if isinstance(template, SplitTensor):
        return template.part(extent, slot)
    if isinstance(template, Container):
        members = tuple(output(member, extent, slot) for member in template.members)
        return Container(template.kind, members)
    return template


@st.composite
def split_tensors(draw: st.DrawFn, dim: int) -> SplitTensor:
    """Draw tensors to split along ``dim``. Shrinks to one dimension."""
    before, after = draw(outer_extents(dim))
    dtype = draw(st.sampled_from(dtypes_along(dim)))
    differentiable = dtype.is_floating_point or dtype.is_complex
    # Complex tensors are row-major: the reference loses their memory format (CO-2).
    layout = "contiguous" if dtype.is_complex else draw(st.sampled_from(LAYOUTS))
    return SplitTensor(before, after, dtype, layout, differentiable and draw(st.booleans()))


def targets() -> st.SearchStrategy[object]:
    """Draw target devices, the CPU included. Shrinks to the first device."""
    spelling = st.sampled_from(["device", "ordinal", "text"])
    return st.builds(DeviceAt, st.integers(0, 3), spelling) | st.just("cpu")


@st.composite
def gather_calls(draw: st.DrawFn, *, kinds: Sequence[str] = JOINED) -> PublicCall:
    """Draw ``gather`` of nested containers of ``kinds``. Shrinks to one replica."""
    dim = draw(st.sampled_from(DIMS))
    others = st.sampled_from([None, *map(NewObject, EMPTY)])
    return _gather(draw, draw(nested_values(split_tensors(dim) | others, kinds)), dim)


@st.composite
def tensor_gather_calls(draw: st.DrawFn) -> PublicCall:
    """Draw ``gather`` of one tensor from each replica. Shrinks to one replica."""
    dim = draw(st.sampled_from(DIMS))
    return _gather(draw, draw(split_tensors(dim)), dim)


def _gather(draw: st.DrawFn, template: object, dim: int) -> PublicCall:
    # Zero comes last, so that failures do not shrink to empty parts.
    replicas = st.tuples(st.sampled_from([1, 2, 3, 0]), st.integers(0, 3))
    parts = draw(st.lists(replicas, min_size=1, max_size=4))
    return _call([output(template, *part) for part in parts], draw(targets()), dim)


def _call(outputs: Sequence[object], target: object, dim: int) -> PublicCall:
    arguments = {"outputs": list(outputs), "target_device": target, "dim": dim}
    return PublicCall("scatter_gather.gather", arguments)


@st.composite
def scalar_calls(draw: st.DrawFn, *, dims: Sequence[int] = (0,)) -> PublicCall:
    """Draw ``gather`` of tensors without dimensions. Shrinks to one replica."""
    dtypes = st.sampled_from(FLOATS)
    leaf = st.builds(SplitTensor, st.none(), st.none(), dtypes, requires_grad=st.booleans())
    template = draw(nested_values(leaf, ("tuple", "list", "dict", "Pair"), max_leaves=3))
    return _gather(draw, template, draw(st.sampled_from(dims)))


@st.composite
def mismatched_calls(draw: st.DrawFn) -> PublicCall:
    """Draw ``gather`` of tensors with other extents than that of ``dim``, or more dimensions.

    Shrinks to two replicas.
    """
    shapes = st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple)
    found = draw(st.lists(shapes, min_size=2, max_size=4, unique_by=lambda shape: shape[1:]))
    outputs = [[TensorSpec(shape, slot=slot)] for slot, shape in enumerate(found)]
    return _call(outputs, draw(targets()), 0)


@st.composite
def dict_gather_calls(draw: st.DrawFn) -> PublicCall:
    """Draw ``gather`` of dictionaries with different keys or another order of keys.

    Shrinks to two replicas.
    """
    sizes = {"b": 1, "a": 2, 3: 4}
    names = st.lists(st.sampled_from(list(sizes)), unique=True, max_size=3)
    first = draw(names)
    others = st.lists(st.permutations(first) | names, min_size=1, max_size=2)
    replicas = [first, *draw(others)]
    outputs = [
        {name: TensorSpec((sizes[name],), slot=slot) for name in keys}
        for slot, keys in enumerate(replicas)
    ]
    return _call(outputs, draw(targets()), 0)


@st.composite
def ragged_gather_calls(draw: st.DrawFn) -> PublicCall:
    """Draw ``gather`` of sequences of several lengths and classes. Shrinks to two replicas."""
    kinds = st.sampled_from(["list", "tuple", "ListSubclass", "TupleSubclass"])
    replicas = draw(st.lists(st.tuples(kinds, st.integers(0, 3)), min_size=2, max_size=4))
    outputs = [
        Container(kind, (TensorSpec((2,), slot=slot),) * length)
        for slot, (kind, length) in enumerate(replicas)
    ]
    return _call(outputs, draw(targets()), 0)
