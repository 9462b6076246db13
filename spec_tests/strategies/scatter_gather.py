"""Calls of scatter, scatter_kwargs and gather on nested structures.

Letters used in this file: ``N`` is the extent along ``dim`` that all tensors of a call share,
``k`` the number of devices.

Calls in which the reference is wrong are not drawn: tensors without dimensions (SG-4), tensors
with different numbers of chunks (SG-2, SG-3), arguments without tensors if there are fewer chunks
than devices (SG-1), dataclasses (SG-8), None beside tensors (SG-9), named tuples without fields
(SG-10), mappings that ``type(mapping)(pairs)`` does not rebuild (SG-11), packed sequences (SG-12),
outputs that are neither tensor nor None (SG-6, SG-7), complex tensors split along a negative
``dim`` (CO-2), and tensors on the CPU that require a gradient (FN-3).
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from hypothesis import strategies as st

from spec_tests.oracle.chunk_sizes import even_chunks
from spec_tests.strategies.calls import PublicCall
from spec_tests.strategies.containers import ARITY, CONSTANTS, EMPTY, OPAQUE, Container, NewObject
from spec_tests.strategies.devices import device_lists
from spec_tests.strategies.tensors import DTYPES, TensorSpec, tensor_specs

#: The kinds of containers whose members scatter splits.
SPLIT = (
    "tuple",
    "list",
    "dict",
    "Pair",
    "OrderedDict",
    "Typed",
    "ListSubclass",
    "TupleSubclass",
    "DictSubclass",
)
#: Values of ``N``. Zero comes last, so that failures do not shrink to it.
EXTENTS = (4, 3, 1, 2, 5, 6, 7, 9, 0)
DIMS = (0, 1, -1, 2, -2)


@st.composite
def outer_extents(draw: st.DrawFn, dim: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Draw the extents before and after ``dim``. Shrinks to as few as ``dim`` allows."""
    fixed = dim if dim >= 0 else -dim - 1
    near = tuple(draw(st.lists(st.integers(1, 3), min_size=fixed, max_size=fixed)))
    far = tuple(draw(st.lists(st.integers(1, 3), max_size=2)))
    return (near, far) if dim >= 0 else (far, near)


@st.composite
def tensors(
    draw: st.DrawFn, extent: int, dim: int, *, slots: Sequence[int | None] = (0, 1, None)
) -> TensorSpec:
    """Draw tensors of ``extent`` along ``dim``. Shrinks to one dimension."""
    before, after = draw(outer_extents(dim))
    shape = st.just((*before, extent, *after))
    spec = draw(tensor_specs(shape=shape, dtypes=dtypes_along(dim), slots=slots))
    # Backward to the CPU warns in the reference (FN-3).
    return replace(spec, requires_grad=spec.requires_grad and spec.slot is not None)


def dtypes_along(dim: int) -> Sequence[torch.dtype]:
    """Return the dtypes to split along ``dim``; complex ones only for ``dim >= 0`` (CO-2)."""
    return DTYPES if dim >= 0 else [dtype for dtype in DTYPES if not dtype.is_complex]


def unsplit_leaves() -> st.SearchStrategy[object]:
    """Draw leaves that scatter passes to every device unchanged. Shrinks to None."""
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


@st.composite
def scatter_calls(
    draw: st.DrawFn, *, kinds: Sequence[str] = SPLIT, dims: Sequence[int] = DIMS
) -> PublicCall:
    """Draw ``scatter`` of nested containers of ``kinds``. Shrinks to few rows."""
    dim = draw(st.sampled_from(dims))
    leaf = tensors(draw(st.sampled_from(EXTENTS)), dim)
    return _scatter(draw, nested_values(leaf | unsplit_leaves(), kinds), dim)


@st.composite
def tensor_scatter_calls(draw: st.DrawFn) -> PublicCall:
    """Draw ``scatter`` of one tensor. Shrinks to few rows."""
    dim = draw(st.sampled_from(DIMS))
    return _scatter(draw, tensors(draw(st.sampled_from(EXTENTS)), dim), dim)


@st.composite
def replicated_calls(draw: st.DrawFn) -> PublicCall:
    """Draw ``scatter`` of structures without tensors. Shrinks to None."""
    return _scatter(draw, nested_values(unsplit_leaves(), SPLIT), 0)


def _scatter(draw: st.DrawFn, inputs: st.SearchStrategy[object], dim: int) -> PublicCall:
    arguments = {"inputs": draw(inputs), "target_gpus": draw(device_lists()), "dim": dim}
    return PublicCall("scatter_gather.scatter", arguments)


@st.composite
def refused_scatter_calls(draw: st.DrawFn) -> PublicCall:
    """Draw ``scatter`` along a dimension that no tensor has. Shrinks to one tensor."""
    # A negative dim excludes complex tensors: their errors count one dimension too many (CO-2).
    leaf = tensors(draw(st.sampled_from(EXTENTS)), -1)
    return _scatter(draw, nested_values(leaf, SPLIT), draw(st.sampled_from([4, 7, -5])))


@st.composite
def scatter_kwargs_calls(draw: st.DrawFn) -> PublicCall:
    """Draw ``scatter_kwargs`` of arguments with equal numbers of chunks.

    Shrinks to one positional tensor.
    """
    dim, devices = draw(st.sampled_from(DIMS)), draw(device_lists())
    extent = draw(st.sampled_from(EXTENTS))
    leaf = tensors(extent, dim)
    # For fewer chunks than devices, args and kwargs need a tensor each: SG-1.
    anchors = [draw(leaf)] if len(even_chunks(extent, len(devices))) < len(devices) else []
    value = nested_values(leaf | unsplit_leaves(), SPLIT, max_leaves=4)
    inputs = draw(st.lists(value, max_size=3).map(lambda found: (*found, *anchors)) | st.just(()))
    names = st.sampled_from(["x", "flag", "rest"])
    kwargs = draw(st.dictionaries(names, value, max_size=2))
    kwargs = {**kwargs, **{f"anchor{i}": anchor for i, anchor in enumerate(anchors)}}
    arguments = {
        "inputs": inputs,
        "kwargs": draw(st.sampled_from([kwargs, {}, None])),
        "target_gpus": devices,
        "dim": dim,
    }
    return PublicCall("scatter_gather.scatter_kwargs", arguments)


def inputs_without_kwargs() -> st.SearchStrategy[PublicCall]:
    """Draw ``scatter_kwargs`` of positional arguments only. Shrinks to one tensor."""
    return _scatter_kwargs("inputs", {"kwargs": {}})


def kwargs_without_inputs() -> st.SearchStrategy[PublicCall]:
    """Draw ``scatter_kwargs`` of keyword arguments only. Shrinks to one tensor."""
    return _scatter_kwargs("kwargs", {"inputs": ()})


@st.composite
def _scatter_kwargs(draw: st.DrawFn, name: str, other: dict[str, object]) -> PublicCall:
    leaf = tensors(draw(st.sampled_from(EXTENTS)), 0)
    value = draw(nested_values(leaf | unsplit_leaves(), SPLIT))
    argument = (value,) if name == "inputs" else {"x": value}
    arguments = {**other, name: argument, "target_gpus": draw(device_lists())}
    return PublicCall("scatter_gather.scatter_kwargs", arguments)
