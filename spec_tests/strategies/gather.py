"""Calls of gather. In most calls, the outputs of all replicas have the same structure.

Calls in which the reference is wrong are not drawn: `spec_tests.strategies.scatter_gather` lists
them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from hypothesis import strategies as st

from spec_tests.harness.environment.capabilities import empty_sizes, offered
from spec_tests.strategies.calls import DeviceAt, PublicCall, on_any_device
from spec_tests.strategies.containers import EMPTY, Container, NewObject
from spec_tests.strategies.scatter_gather import (
    DIMS,
    SPLIT,
    dtypes_along,
    nested_values,
    outer_extents,
)
from spec_tests.strategies.tensors import FLOATS, LAYOUTS, TensorSpec, bit_patterns

#: The kinds of containers whose members gather concatenates.
JOINED = (*SPLIT, "CacheSequence", "max")


@dataclass(frozen=True)
class SplitTensor:
    """A description of a tensor of which each replica returns a chunk.

    Args:
        before: The extents before the split dimension; None for 0-dim chunks.
        after: The extents after the split dimension; None for 0-dim chunks.
        dtype: The dtype.
        layout: One of `LAYOUTS`.
        requires_grad: Whether each chunk requires a gradient.
        bits: The number of the first bit pattern of each chunk, or None; see `TensorSpec`.
    """

    before: tuple[int, ...] | None
    after: tuple[int, ...] | None
    dtype: torch.dtype = torch.float32
    layout: str = "contiguous"
    requires_grad: bool = False
    bits: int | None = None

    def chunk(self, extent: int, slot: int | None) -> TensorSpec:
        """Describe the chunk of length ``extent`` that the replica on device ``slot`` returns."""
        is_scalar = self.before is None or self.after is None
        shape = () if is_scalar else (*(self.before or ()), extent, *(self.after or ()))
        return TensorSpec(shape, self.dtype, self.layout, self.requires_grad, slot, self.bits)


def replica_output(template: object, extent: int, slot: int | None) -> object:
    """Return the output of a replica: ``template`` with a chunk in place of each `SplitTensor`."""
    if isinstance(template, SplitTensor):
        return template.chunk(extent, slot)
    if isinstance(template, Container):
        members = tuple(replica_output(member, extent, slot) for member in template.members)
        return Container(template.kind, members)
    return template


@st.composite
def split_tensors(draw: st.DrawFn, dim: int) -> SplitTensor:
    """Draw descriptions of tensors that are split along ``dim``. Shrinks to a 1-dim tensor."""
    before, after = draw(outer_extents(dim))
    dtype = draw(st.sampled_from(offered(dtypes_along(dim))))
    differentiable = dtype.is_floating_point or dtype.is_complex
    # The reference loses the memory format of complex tensors (CO-2).
    layout = "contiguous" if dtype.is_complex else draw(st.sampled_from(LAYOUTS))
    requires_grad = differentiable and draw(st.booleans())
    return SplitTensor(before, after, dtype, layout, requires_grad, draw(bit_patterns()))


def target_devices() -> st.SearchStrategy[object]:
    """Draw values of ``target_device``, the CPU included. Shrinks to the first device."""
    spelling = st.sampled_from(["device", "ordinal", "text"])
    return st.builds(DeviceAt, st.integers(0, 3), spelling) | st.just("cpu")


@on_any_device
@st.composite
def gather_calls(draw: st.DrawFn, *, kinds: Sequence[str] = JOINED) -> PublicCall:
    """Draw calls of ``gather`` with nested containers of ``kinds``. Shrinks to one replica."""
    dim = draw(st.sampled_from(DIMS))
    others = st.sampled_from([None, *map(NewObject, EMPTY)])
    return _draw_call(draw, draw(nested_values(split_tensors(dim) | others, kinds)), dim)


@on_any_device
@st.composite
def tensor_gather_calls(draw: st.DrawFn) -> PublicCall:
    """Draw calls of ``gather`` with one tensor from each replica. Shrinks to one replica."""
    dim = draw(st.sampled_from(DIMS))
    return _draw_call(draw, draw(split_tensors(dim)), dim)


def _draw_call(draw: st.DrawFn, template: object, dim: int) -> PublicCall:
    # Zero comes last, so that failures do not shrink to empty chunks.
    extent_and_slot = st.tuples(st.sampled_from([1, 2, 3, *empty_sizes()]), st.integers(0, 3))
    chunks = draw(st.lists(extent_and_slot, min_size=1, max_size=4))
    return _gather_call(
        [replica_output(template, *chunk) for chunk in chunks], draw(target_devices()), dim
    )


def _gather_call(outputs: Sequence[object], target: object, dim: int) -> PublicCall:
    arguments = {"outputs": list(outputs), "target_device": target, "dim": dim}
    return PublicCall("scatter_gather.gather", arguments)


@on_any_device
@st.composite
def scalar_calls(draw: st.DrawFn, *, dims: Sequence[int] = (0,)) -> PublicCall:
    """Draw calls of ``gather`` with 0-dim tensors. Shrinks to one replica."""
    dtypes = st.sampled_from(offered(FLOATS))
    leaf = st.builds(SplitTensor, st.none(), st.none(), dtypes, requires_grad=st.booleans())
    template = draw(nested_values(leaf, ("tuple", "list", "dict", "Pair"), max_leaves=3))
    return _draw_call(draw, template, draw(st.sampled_from(dims)))


@on_any_device
@st.composite
def mismatched_calls(draw: st.DrawFn) -> PublicCall:
    """Draw calls of ``gather`` with tensors whose shapes differ outside the gathered dimension.

    Shrinks to two replicas.
    """
    shapes = st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple)
    drawn = draw(st.lists(shapes, min_size=2, max_size=4, unique_by=lambda shape: shape[1:]))
    outputs = [[TensorSpec(shape, slot=slot)] for slot, shape in enumerate(drawn)]
    return _gather_call(outputs, draw(target_devices()), 0)


@st.composite
def dict_gather_calls(draw: st.DrawFn) -> PublicCall:
    """Draw calls of ``gather`` with dictionaries whose keys, or their order, may differ.

    Shrinks to two replicas.
    """
    lengths = {"b": 1, "a": 2, 3: 4}
    key_lists = st.lists(st.sampled_from(list(lengths)), unique=True, max_size=3)
    first = draw(key_lists)
    others = st.lists(st.permutations(first) | key_lists, min_size=1, max_size=2)
    replicas = [first, *draw(others)]
    outputs = [
        {key: TensorSpec((lengths[key],), slot=slot) for key in keys}
        for slot, keys in enumerate(replicas)
    ]
    return _gather_call(outputs, draw(target_devices()), 0)


@st.composite
def ragged_gather_calls(draw: st.DrawFn) -> PublicCall:
    """Draw calls of ``gather`` with sequences whose lengths may differ.

    Shrinks to two replicas.
    """
    kinds = st.sampled_from(["list", "tuple", "ListSubclass", "TupleSubclass"])
    sequences = st.tuples(kinds, st.integers(0, 3)) | st.just(("Pair", 2))
    replicas = draw(st.lists(sequences, min_size=2, max_size=4))
    outputs = [
        Container(kind, (TensorSpec((2,), slot=slot),) * length)
        for slot, (kind, length) in enumerate(replicas)
    ]
    return _gather_call(outputs, draw(target_devices()), 0)
