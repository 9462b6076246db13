"""Calls of the functions in ``comm``.

These calls are not drawn by default, because they show known divergences of the reference:

* CO-1, CO-2: complex tensors, for which the reference returns real views,
* CO-4: broadcast_coalesced to a repeated device, and reduce_add_coalesced of a single list: the
  reference sometimes returns views of the input.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from hypothesis import strategies as st

from spec_tests.machine.capabilities import empty_sizes, offered, offers
from spec_tests.strategies.calls import (
    SAME_SHAPE,
    SPELLINGS,
    DeviceAt,
    DistinctDevices,
    KeywordCall,
    any_device,
    device_lists,
    on_any_device,
    repeated,
)
from spec_tests.strategies.tensors import (
    DTYPES,
    FLOATS,
    INTEGERS,
    LAYOUTS,
    WRITABLE,
    SparseSpec,
    TensorSpec,
    one_or_all,
    shapes,
    sparse_specs,
    tensor_specs,
)

#: All dtypes that are not complex.
REAL = (*FLOATS, *INTEGERS, torch.bool)
#: Options of `tensor_specs` for tensors that are written.
WRITTEN: Mapping[str, Any] = {"layouts": WRITABLE, "grads": (False,), "moved": False}


#: The extents before ``dim``, the lengths of the chunks, and the extents after ``dim``.
Extents = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


@st.composite
def split_extents(draw: st.DrawFn) -> Extents:
    """Draw three tuples: extents before ``dim``, chunk lengths along ``dim``, extents after it.

    Shrinks to one chunk.
    """
    # Zero comes last, so that failures do not shrink to empty chunks.
    size = st.sampled_from([1, 2, 3, *empty_sizes()])
    # Two independent draws would often be equal, three or four of them rarely.
    different = st.lists(size, min_size=2, max_size=4, unique=True)
    equal = st.builds(lambda length, count: [length] * count, size, st.sampled_from([3, 4]))
    chunks = draw(st.lists(size, min_size=1, max_size=4) | different | equal)
    before = draw(st.lists(st.integers(1, 3), max_size=2))
    after = draw(st.lists(st.integers(1, 3), max_size=2))
    return tuple(before), tuple(chunks), tuple(after)


def chunk_specs(extents: Extents, **options: Any) -> st.SearchStrategy[tuple[TensorSpec, ...]]:
    """Draw descriptions of the chunks on any devices. ``options`` are those of `tensor_specs`."""
    before, chunks, after = extents
    options = {"slots": range(4), "grads": (False,), **options}
    shapes = [st.just((*before, chunk, *after)) for chunk in chunks]
    return st.tuples(*(tensor_specs(shape=shape, **options) for shape in shapes))


@on_any_device
@st.composite
def scatter_calls(
    draw: st.DrawFn,
    *,
    dtypes: Sequence[torch.dtype] = REAL,
    layouts: Sequence[str] = LAYOUTS,
    grads: Sequence[bool] = (False, True),
    slots: Sequence[int | None] = (0, 1, None),
) -> KeywordCall:
    """Draw calls of ``scatter``. Shrinks to one chunk of one element."""
    before, chunks, after = draw(split_extents())
    shape = (*before, sum(chunks), *after)
    arguments = {
        "tensor": draw(
            tensor_specs(
                shape=st.just(shape), dtypes=dtypes, layouts=layouts, slots=slots, grads=grads
            )
        ),
        "devices": draw(device_lists(min_size=len(chunks), max_size=len(chunks))),
        "chunk_sizes": draw(st.sampled_from([list(chunks), None])),
        "dim": draw(st.sampled_from([len(before), len(before) - len(shape)])),
    }
    return KeywordCall("comm.scatter", arguments)


@on_any_device
@st.composite
def scatter_out_calls(
    draw: st.DrawFn, *, dtypes: Sequence[torch.dtype] = REAL, grads: Sequence[bool] = (False,)
) -> KeywordCall:
    """Draw calls of ``scatter`` with ``out``. Shrinks to one output of one element."""
    dtypes = draw(one_or_all(dtypes))
    before, chunks, after = extents = draw(split_extents())
    shape = (*before, sum(chunks), *after)
    outs = draw(chunk_specs(extents, dtypes=dtypes, **WRITTEN))
    source = tensor_specs(
        shape=st.just(shape),
        dtypes=dtypes,
        slots=(0, 1, None),
        grads=grads,
        moved=len(dtypes) == 1,
    )
    arguments = {
        "tensor": draw(source),
        "dim": draw(st.sampled_from([len(before), len(before) - len(shape)])),
        "out": list(outs),
    }
    return KeywordCall("comm.scatter", arguments)


@on_any_device
@st.composite
def broadcast_calls(
    draw: st.DrawFn,
    *,
    dtypes: Sequence[torch.dtype] = REAL,
    layouts: Sequence[str] = LAYOUTS,
    grads: Sequence[bool] = (False,),
    counts: Sequence[int] = (1, 2, 3, 4, 0),
) -> KeywordCall:
    """Draw calls of ``broadcast`` with a dense tensor. Shrinks to one device."""
    count = draw(st.sampled_from(counts))
    source = tensor_specs(dtypes=dtypes, layouts=layouts, slots=(0, 1, None), grads=grads)
    return KeywordCall(
        "comm.broadcast",
        {"tensor": draw(source), "devices": draw(device_lists(min_size=count, max_size=count))},
    )


@on_any_device
@st.composite
def broadcast_out_calls(
    draw: st.DrawFn,
    *,
    dtypes: Sequence[torch.dtype] = REAL,
    grads: Sequence[bool] = (False,),
    counts: Sequence[int] = (1, 2, 3, 0),
) -> KeywordCall:
    """Draw calls of ``broadcast`` with a list ``out``, possibly empty. Shrinks to one output."""
    dtypes = draw(one_or_all(dtypes))
    source = draw(
        tensor_specs(dtypes=dtypes, slots=(0, 1, None), grads=grads, moved=len(dtypes) == 1)
    )
    count = draw(st.sampled_from(counts))
    out = tensor_specs(shape=st.just(source.shape), dtypes=dtypes, slots=range(4), **WRITTEN)
    outs = draw(st.lists(out, min_size=count, max_size=count))
    return KeywordCall("comm.broadcast", {"tensor": source, "out": outs})


@st.composite
def chunk_lists(
    draw: st.DrawFn, *, dtypes: Sequence[torch.dtype], layouts: Sequence[str] = LAYOUTS
) -> tuple[list[TensorSpec], int, tuple[int, ...]]:
    """Draw chunks, ``dim``, and the shape of the joined chunks. Shrinks to one chunk."""
    before, chunks, after = extents = draw(split_extents())
    moved = len(dtypes) == 1
    specs = list(draw(chunk_specs(extents, dtypes=dtypes, layouts=layouts, moved=moved)))
    shape = (*before, sum(chunks), *after)
    return specs, draw(st.sampled_from([len(before), len(before) - len(shape)])), shape


@on_any_device
@st.composite
def gather_calls(
    draw: st.DrawFn, *, dtypes: Sequence[torch.dtype] = REAL, layouts: Sequence[str] = LAYOUTS
) -> KeywordCall:
    """Draw calls of ``gather``. Shrinks to one chunk of one element."""
    specs, dim, _ = draw(chunk_lists(dtypes=draw(one_or_all(dtypes)), layouts=layouts))
    arguments: dict[str, object] = {"tensors": draw(repeated(specs)), "dim": dim}
    destination = draw(st.one_of(any_device(), st.sampled_from([None, "cpu", DeviceAt(None)])))
    return KeywordCall("comm.gather", {**arguments, "destination": destination})


@on_any_device
@st.composite
def gather_out_calls(draw: st.DrawFn, *, dtypes: Sequence[torch.dtype] = REAL) -> KeywordCall:
    """Draw calls of ``gather`` with ``out``. Shrinks to one chunk of one element."""
    dtypes = draw(one_or_all(dtypes))
    specs, dim, shape = draw(chunk_lists(dtypes=dtypes))
    out = tensor_specs(shape=st.just(shape), dtypes=dtypes, slots=(0, 1, None), **WRITTEN)
    return KeywordCall("comm.gather", {"tensors": specs, "dim": dim, "out": draw(out)})


def dense(shape: tuple[int, ...] = (4, 3), slot: int | None = 0, **fields: object) -> TensorSpec:
    """Return the description of a float32 tensor. ``fields`` are other fields of `TensorSpec`."""
    return TensorSpec(shape, slot=slot, **fields)  # type: ignore[arg-type]  # checked by the class


#: A sparse matrix on the first device with one stored element.
SPARSE = SparseSpec()


#: Values of ``buffer_size`` in bytes. With the first value, all tensors form one bucket. With the
#: last value, each tensor forms its own bucket.
BUFFER_SIZES = (10 * 2**20, 64, 16, 1, 0)
#: Code that makes views of a dense tensor: the same object, the same shape, other shapes.
VIEWS = (*SAME_SHAPE, ".detach()[..., None]", ".detach().flatten()[-1:]")


def _short_dtype_lists(dtypes: Sequence[torch.dtype]) -> st.SearchStrategy[list[torch.dtype]]:
    """Draw three dtypes, so that several tensors have the same dtype."""
    return st.permutations(offered(dtypes)).map(lambda order: order[:3])


@on_any_device
@st.composite
def broadcast_coalesced_calls(
    draw: st.DrawFn, *, grads: Sequence[bool] = (False, True), sparse: bool = True
) -> KeywordCall:
    """Draw calls with dense and sparse tensors of real dtypes. Shrinks to one tensor."""
    slots = tuple(draw(st.permutations(range(4))))[: draw(st.sampled_from([2, 3, 1, 4]))]
    source = slots[:1]
    dtypes = draw(_short_dtype_lists(REAL))
    kinds = [False, False, True] if sparse and offers("sparse") else [False]
    tensors: list[TensorSpec | SparseSpec] = []
    # The dtypes take turns: independent draws would often be equal.
    for index in range(draw(st.sampled_from([1, 2, 3, 4, 5, 6, 0]))):
        dense = tensor_specs(
            shape=shapes(max_size=3),
            dtypes=[dtypes[index % len(dtypes)]],
            slots=source,
            grads=grads,
        )
        is_sparse = draw(st.sampled_from(kinds))
        tensors.append(draw(sparse_specs(slots=source)) if is_sparse else draw(dense))
    is_dense = all(isinstance(each, TensorSpec) for each in tensors)
    arguments: dict[str, object] = {
        "tensors": draw(repeated(tensors, VIEWS if is_dense else SAME_SHAPE)),
        "devices": DistinctDevices(slots, draw(st.sampled_from(SPELLINGS))),
        "buffer_size": draw(st.sampled_from(BUFFER_SIZES)),
    }
    return KeywordCall("comm.broadcast_coalesced", arguments)


@on_any_device
@st.composite
def reduce_add_calls(
    draw: st.DrawFn, *, dtypes: Sequence[torch.dtype] = DTYPES, grads: Sequence[bool] = (False,)
) -> KeywordCall:
    """Draw calls with addends of one shape on any devices. Shrinks to one float32 element."""
    slots = draw(st.lists(st.integers(0, 3), min_size=1, max_size=4))
    shape = st.just(draw(shapes(max_size=3)))
    dtype = [draw(st.sampled_from(offered(dtypes)))]
    # Integers of any bits have one sum, which wraps around. The sum of floats may round.
    exact = not (dtype[0].is_floating_point or dtype[0].is_complex)
    inputs = [
        draw(tensor_specs(shape=shape, dtypes=dtype, slots=[slot], grads=grads, moved=exact))
        for slot in slots
    ]
    arguments = {"inputs": draw(repeated(inputs)), "destination": draw(any_device(slots))}
    return KeywordCall("comm.reduce_add", arguments)


@on_any_device
@st.composite
def reduce_add_coalesced_calls(draw: st.DrawFn) -> KeywordCall:
    """Draw calls with one list of tensors for each device. Shrinks to two devices."""
    slots = draw(st.lists(st.integers(0, 3), min_size=2, max_size=4))
    column = st.tuples(shapes(max_size=3), st.sampled_from(draw(_short_dtype_lists(DTYPES))))
    # Equal shapes with other layouts have other elements, so that a test notices swapped sums.
    columns = draw(st.lists(column, max_size=3)) * draw(st.sampled_from([1, 2]))
    layout = st.sampled_from(LAYOUTS)
    rows = [
        [TensorSpec(shape, dtype, draw(layout), slot=slot) for shape, dtype in columns]
        for slot in slots
    ]
    arguments: dict[str, object] = {
        "inputs": draw(repeated(rows, [""])),
        "destination": draw(any_device(slots)),
        "buffer_size": draw(st.sampled_from(BUFFER_SIZES)),
    }
    return KeywordCall("comm.reduce_add_coalesced", arguments)


@st.composite
def mixed_rows(draw: st.DrawFn) -> list[list[TensorSpec | SparseSpec]]:
    """Draw a list of tensors for each device. A tensor may be sparse on some devices only."""
    slots = draw(st.lists(st.integers(0, 3), min_size=2, max_size=3))
    # For one position: the indices of the lists whose tensor at this position is sparse.
    sparse = st.sampled_from([(), (0, 1, 2), (0,), (1,), (1, 2)])
    positions = draw(st.lists(sparse, min_size=1, max_size=4))
    return [
        [draw(_matrix_specs(row in sparse_rows, slot)) for sparse_rows in positions]
        for row, slot in enumerate(slots)
    ]


def _matrix_specs(is_sparse: bool, slot: int) -> st.SearchStrategy[TensorSpec | SparseSpec]:
    shape = (3, 2)
    if is_sparse:
        return sparse_specs(dtypes=(torch.float32,), shape=shape, slots=[slot])
    return st.just(TensorSpec(shape, slot=slot))
