"""Calls of scatter, scatter_kwargs and gather with nested containers.

These calls are not drawn, because they show known divergences of the reference:

* SG-1: arguments without tensors if there are fewer chunks than devices,
* SG-2, SG-3: tensors with different numbers of chunks,
* SG-4: tensors without dimensions,
* SG-6, SG-7: outputs that are neither tensor nor None,
* SG-8: dataclasses,
* SG-9: None beside tensors,
* SG-10: named tuples without fields,
* SG-11: mappings that ``type(mapping)(pairs)`` does not rebuild,
* SG-12: packed sequences,
* SG-16: inputs of subclasses of list and tuple,
* CO-2: complex tensors that are split along a negative ``dim``,
* FN-3: tensors on the CPU that require a gradient.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from hypothesis import strategies as st

from spec_tests.machine.capabilities import empty_sizes, offered
from spec_tests.oracle.chunk_sizes import even_chunks
from spec_tests.strategies.calls import (
    Again,
    KeywordCall,
    any_device,
    device_lists,
    on_any_device,
    repeated,
)
from spec_tests.strategies.containers import ARITY, CONSTANTS, EMPTY, OPAQUE, Container, NewObject
from spec_tests.strategies.tensors import DTYPES, FLOATS, TensorSpec, tensor_specs

#: The kinds of containers whose members scatter splits.
SPLIT = ("tuple", "list", "dict", "Pair", "OrderedDict", "Typed", "DictSubclass")
#: Extents of all tensors of a call along the split dimension. Zero comes last, so that failures do
#: not shrink to empty tensors.
EXTENTS = (4, 3, 1, 2, 5, 6, 7, 9, 0)
#: Values of ``dim``.
DIMS = (0, 1, -1, 2, -2)


@st.composite
def outer_extents(draw: st.DrawFn, dim: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Draw the extents before ``dim`` and the extents after it. Shrinks to the fewest extents."""
    # The sign of ``dim`` fixes the number of dimensions on one side. The other side is free.
    count = dim if dim >= 0 else -dim - 1
    fixed_side = tuple(draw(st.lists(st.integers(1, 3), min_size=count, max_size=count)))
    free_side = tuple(draw(st.lists(st.integers(1, 3), max_size=2)))
    return (fixed_side, free_side) if dim >= 0 else (free_side, fixed_side)


@st.composite
def tensors(
    draw: st.DrawFn, extent: int, dim: int, *, slots: Sequence[int | None] = (0, 1, None)
) -> TensorSpec:
    """Draw descriptions of tensors with ``extent`` along ``dim``. Shrinks to a 1-dim tensor."""
    before, after = draw(outer_extents(dim))
    shape = st.just((*before, extent, *after))
    spec = draw(tensor_specs(shape=shape, dtypes=dtypes_along(dim), slots=slots))
    # No gradients for CPU tensors: the reference warns in the backward to the CPU (FN-3).
    return replace(spec, requires_grad=spec.requires_grad and spec.slot is not None)


def dtypes_along(dim: int) -> Sequence[torch.dtype]:
    """Return the dtypes to split along ``dim``. Complex dtypes require ``dim >= 0`` (CO-2)."""
    return DTYPES if dim >= 0 else [dtype for dtype in DTYPES if not dtype.is_complex]


def unsplit_leaves() -> st.SearchStrategy[object]:
    """Draw objects that scatter passes to every device unchanged. Shrinks to None."""
    return st.sampled_from([*CONSTANTS, *map(NewObject, EMPTY), *map(NewObject, OPAQUE)])


def nested_values(
    leaves: st.SearchStrategy[object], kinds: Sequence[str], *, max_leaves: int = 6
) -> st.SearchStrategy[object]:
    """Draw a leaf, or nested containers of ``kinds``. Shrinks to a leaf."""
    return st.recursive(leaves, lambda inner: containers(inner, kinds), max_leaves=max_leaves)


@st.composite
def containers(
    draw: st.DrawFn, inner: st.SearchStrategy[object], kinds: Sequence[str]
) -> Container:
    """Draw a container with members from ``inner``. Shrinks to one member."""
    kind = draw(st.sampled_from(kinds))
    least, most = (ARITY[kind], ARITY[kind]) if kind in ARITY else (1, 3)
    return Container(kind, tuple(draw(st.lists(inner, min_size=least, max_size=most))))


@on_any_device
@st.composite
def scatter_calls(draw: st.DrawFn, *, kinds: Sequence[str] = SPLIT) -> KeywordCall:
    """Draw calls of ``scatter`` with nested containers of ``kinds``. Shrinks to one tensor."""
    dim = draw(st.sampled_from(DIMS))
    leaf = tensors(draw(st.sampled_from(EXTENTS)), dim)
    value = nested_values(leaf | unsplit_leaves(), kinds)
    # The list contains the same object twice.
    twice = value.map(lambda drawn: [drawn, Again(0)])
    return _scatter_call(draw, value | twice, dim)


@on_any_device
@st.composite
def tensor_scatter_calls(draw: st.DrawFn) -> KeywordCall:
    """Draw calls of ``scatter`` with one tensor. Shrinks to four rows."""
    dim = draw(st.sampled_from(DIMS))
    return _scatter_call(draw, tensors(draw(st.sampled_from(EXTENTS)), dim), dim)


@on_any_device
@st.composite
def replicated_calls(draw: st.DrawFn) -> KeywordCall:
    """Draw calls of ``scatter`` with containers that hold nothing to split. Shrinks to None."""
    return _scatter_call(draw, nested_values(unsplit_leaves(), SPLIT), 0)


def _scatter_call(draw: st.DrawFn, inputs: st.SearchStrategy[object], dim: int) -> KeywordCall:
    arguments = {"inputs": draw(inputs), "target_gpus": draw(device_lists()), "dim": dim}
    return KeywordCall("scatter_gather.scatter", arguments)


@on_any_device
@st.composite
def refused_scatter_calls(draw: st.DrawFn) -> KeywordCall:
    """Draw calls of ``scatter`` along a dimension that no tensor has. Shrinks to one tensor."""
    # Drawing for dim -1 excludes complex tensors: the reference's errors about them count one
    # dimension too many (CO-2).
    leaf = tensors(draw(st.sampled_from(EXTENTS)), -1)
    return _scatter_call(draw, nested_values(leaf, SPLIT), draw(st.sampled_from([4, 7, -5])))


@on_any_device
@st.composite
def scatter_kwargs_calls(draw: st.DrawFn) -> KeywordCall:
    """Draw calls of ``scatter_kwargs`` with equal numbers of chunks for all tensors.

    Shrinks to one positional tensor.
    """
    dim, devices = draw(st.sampled_from(DIMS)), draw(device_lists())
    extent = draw(st.sampled_from(EXTENTS))
    leaf = tensors(extent, dim)
    # With fewer chunks than devices, both args and kwargs must contain a tensor (SG-1).
    anchors = [draw(leaf)] if len(even_chunks(extent, len(devices))) < len(devices) else []
    value = nested_values(leaf | unsplit_leaves(), SPLIT, max_leaves=4)
    inputs = draw(st.lists(value, max_size=3).map(lambda drawn: (*drawn, *anchors)) | st.just(()))
    inputs = tuple(draw(repeated(inputs, [""])))
    names = st.sampled_from(["x", "flag", "rest"])
    kwargs = draw(st.dictionaries(names, value, max_size=2))
    kwargs = {**kwargs, **{f"anchor{i}": anchor for i, anchor in enumerate(anchors)}}
    arguments = {
        "inputs": inputs,
        "kwargs": draw(st.sampled_from([kwargs, {}, None])),
        "target_gpus": devices,
        "dim": dim,
    }
    return KeywordCall("scatter_gather.scatter_kwargs", arguments)


@st.composite
def one_sided_calls(draw: st.DrawFn, filled: str = "inputs") -> KeywordCall:
    """Draw calls of ``scatter_kwargs`` with one argument empty. Shrinks to one tensor.

    Args:
        draw: The draw function of Hypothesis.
        filled: The argument that is not empty: ``inputs`` or ``kwargs``.
    """
    leaf = tensors(draw(st.sampled_from(EXTENTS)), 0)
    value = draw(nested_values(leaf | unsplit_leaves(), SPLIT))
    argument: object = (value,) if filled == "inputs" else {"x": value}
    arguments = {"inputs": (), "kwargs": {}, filled: argument, "target_gpus": draw(device_lists())}
    return KeywordCall("scatter_gather.scatter_kwargs", arguments)


#: The kinds of containers whose members gather concatenates.
JOINED = (*SPLIT, "ListSubclass", "TupleSubclass", "CacheSequence", "max")


def replica_output(template: object, extent: int, slot: int | None, dim: int) -> object:
    """Return the output of a replica: ``template`` with a chunk in place of each tensor.

    A chunk of a tensor with dimensions has ``extent`` along ``dim``.
    """
    if isinstance(template, TensorSpec):
        shape = list(template.shape)
        if shape:
            shape[dim] = extent
        return replace(template, shape=tuple(shape), slot=slot)
    if isinstance(template, Container):
        members = tuple(replica_output(each, extent, slot, dim) for each in template.members)
        return Container(template.kind, members)
    return template


def split_tensors(dim: int) -> st.SearchStrategy[TensorSpec]:
    """Draw descriptions of tensors that are split along ``dim``. Shrinks to a 1-dim tensor."""
    # The reference loses the memory format of complex tensors (CO-2).
    return tensors(1, dim, slots=(0,)).map(
        lambda each: replace(each, layout="contiguous") if each.dtype.is_complex else each
    )


def target_devices() -> st.SearchStrategy[object]:
    """Draw values of ``target_device``, the CPU included. Shrinks to the first device."""
    return any_device() | st.just("cpu")


@on_any_device
@st.composite
def gather_calls(draw: st.DrawFn, *, kinds: Sequence[str] = JOINED) -> KeywordCall:
    """Draw calls of ``gather`` with nested containers of ``kinds``. Shrinks to one replica."""
    dim = draw(st.sampled_from(DIMS))
    others = st.sampled_from([None, *map(NewObject, EMPTY)])
    return _draw_call(draw, draw(nested_values(split_tensors(dim) | others, kinds)), dim)


@on_any_device
@st.composite
def tensor_gather_calls(draw: st.DrawFn) -> KeywordCall:
    """Draw calls of ``gather`` with one tensor from each replica. Shrinks to one replica."""
    dim = draw(st.sampled_from(DIMS))
    return _draw_call(draw, draw(split_tensors(dim)), dim)


def _draw_call(draw: st.DrawFn, template: object, dim: int) -> KeywordCall:
    # Zero comes last, so that failures do not shrink to empty chunks.
    extent_and_slot = st.tuples(st.sampled_from([1, 2, 3, *empty_sizes()]), st.integers(0, 3))
    chunks = draw(st.lists(extent_and_slot, min_size=1, max_size=4))
    return _gather_call(
        [replica_output(template, *chunk, dim) for chunk in chunks], draw(target_devices()), dim
    )


def _gather_call(outputs: Sequence[object], target: object, dim: int) -> KeywordCall:
    arguments = {"outputs": list(outputs), "target_device": target, "dim": dim}
    return KeywordCall("scatter_gather.gather", arguments)


@on_any_device
@st.composite
def scalar_calls(draw: st.DrawFn, *, dims: Sequence[int] = (0,)) -> KeywordCall:
    """Draw calls of ``gather`` with 0-dim tensors. Shrinks to one replica."""
    dtypes = st.sampled_from(offered(FLOATS))
    leaf = st.builds(TensorSpec, st.just(()), dtypes, requires_grad=st.booleans())
    template = draw(nested_values(leaf, ("tuple", "list", "dict", "Pair"), max_leaves=3))
    return _draw_call(draw, template, draw(st.sampled_from(dims)))


@on_any_device
@st.composite
def mismatched_calls(draw: st.DrawFn) -> KeywordCall:
    """Draw calls of ``gather`` with tensors whose shapes differ outside the gathered dimension.

    Shrinks to two replicas.
    """
    shapes = st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple)
    drawn = draw(st.lists(shapes, min_size=2, max_size=4, unique_by=lambda shape: shape[1:]))
    outputs = [[TensorSpec(shape, slot=slot)] for slot, shape in enumerate(drawn)]
    return _gather_call(outputs, draw(target_devices()), 0)
