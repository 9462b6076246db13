"""Calls of scatter, broadcast and gather in ``comm``.

By default no complex tensors are drawn: the reference returns real views of them (divergences CO-1
and CO-2).
"""

from collections.abc import Sequence
from typing import Any

import torch
from hypothesis import strategies as st

from spec_tests.harness.environment.capabilities import empty_sizes
from spec_tests.strategies.calls import DeviceAt, PublicCall, on_any_device, repeated
from spec_tests.strategies.devices import any_device, device_lists
from spec_tests.strategies.sparse import SparseSpec, sparse_specs
from spec_tests.strategies.tensors import (
    FLOATS,
    INTEGERS,
    LAYOUTS,
    WRITABLE,
    TensorSpec,
    one_or_all,
    tensor_specs,
)

#: All dtypes that are not complex.
REAL = (*FLOATS, *INTEGERS, torch.bool)


#: The extents before ``dim``, the lengths of the chunks, and the extents after ``dim``.
Extents = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


@st.composite
def split_extents(draw: st.DrawFn) -> Extents:
    """Draw three tuples: extents before ``dim``, chunk lengths along ``dim``, extents after it.

    Shrinks to one chunk.
    """
    # Zero comes last, so that failures do not shrink to empty chunks.
    size = st.sampled_from([1, 2, 3, *empty_sizes()])
    # Independent draws would often be equal.
    different = st.lists(size, min_size=2, max_size=4, unique=True)
    chunks = draw(st.lists(size, min_size=1, max_size=4) | different)
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
) -> PublicCall:
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
    return PublicCall("comm.scatter", arguments)


@on_any_device
@st.composite
def scatter_out_calls(
    draw: st.DrawFn,
    *,
    dtypes: Sequence[torch.dtype] = REAL,
    grads: Sequence[bool] = (False,),
) -> PublicCall:
    """Draw calls of ``scatter`` with ``out``. Shrinks to one output of one element."""
    dtypes = draw(one_or_all(dtypes))
    before, chunks, after = extents = draw(split_extents())
    shape = (*before, sum(chunks), *after)
    outs = draw(chunk_specs(extents, dtypes=dtypes, layouts=WRITABLE, moved=False))
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
    return PublicCall("comm.scatter", arguments)


@on_any_device
@st.composite
def broadcast_calls(
    draw: st.DrawFn,
    *,
    dtypes: Sequence[torch.dtype] = REAL,
    layouts: Sequence[str] = LAYOUTS,
    grads: Sequence[bool] = (False,),
    counts: Sequence[int] = (1, 2, 3, 4, 0),
) -> PublicCall:
    """Draw calls of ``broadcast`` with a dense tensor. Shrinks to one device."""
    count = draw(st.sampled_from(counts))
    source = tensor_specs(dtypes=dtypes, layouts=layouts, slots=(0, 1, None), grads=grads)
    return PublicCall(
        "comm.broadcast",
        {"tensor": draw(source), "devices": draw(device_lists(min_size=count, max_size=count))},
    )


@on_any_device
@st.composite
def sparse_broadcast_calls(draw: st.DrawFn) -> PublicCall:
    """Draw calls of ``broadcast`` with a sparse tensor and three devices."""
    source = draw(sparse_specs(slots=(0, 1, None)))
    return PublicCall(
        "comm.broadcast", {"tensor": source, "devices": draw(device_lists(min_size=3, max_size=3))}
    )


@on_any_device
@st.composite
def broadcast_out_calls(
    draw: st.DrawFn,
    *,
    dtypes: Sequence[torch.dtype] = REAL,
    grads: Sequence[bool] = (False,),
    counts: Sequence[int] = (1, 2, 3, 0),
) -> PublicCall:
    """Draw calls of ``broadcast`` with a list ``out``, possibly empty. Shrinks to one output."""
    dtypes = draw(one_or_all(dtypes))
    source = draw(
        tensor_specs(dtypes=dtypes, slots=(0, 1, None), grads=grads, moved=len(dtypes) == 1)
    )
    count = draw(st.sampled_from(counts))
    out = tensor_specs(
        shape=st.just(source.shape),
        dtypes=dtypes,
        layouts=WRITABLE,
        slots=range(4),
        grads=(False,),
        moved=False,
    )
    outs = draw(st.lists(out, min_size=count, max_size=count))
    return PublicCall("comm.broadcast", {"tensor": source, "out": outs})


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
    draw: st.DrawFn,
    *,
    dtypes: Sequence[torch.dtype] = REAL,
    layouts: Sequence[str] = LAYOUTS,
) -> PublicCall:
    """Draw calls of ``gather``. Shrinks to one chunk of one element."""
    specs, dim, _ = draw(chunk_lists(dtypes=draw(one_or_all(dtypes)), layouts=layouts))
    arguments: dict[str, object] = {"tensors": draw(repeated(specs)), "dim": dim}
    destination = draw(st.one_of(any_device(), st.sampled_from([None, "cpu", DeviceAt(None)])))
    return PublicCall("comm.gather", {**arguments, "destination": destination})


@on_any_device
@st.composite
def gather_out_calls(draw: st.DrawFn, *, dtypes: Sequence[torch.dtype] = REAL) -> PublicCall:
    """Draw calls of ``gather`` with ``out``. Shrinks to one chunk of one element."""
    dtypes = draw(one_or_all(dtypes))
    specs, dim, shape = draw(chunk_lists(dtypes=dtypes))
    out = tensor_specs(
        shape=st.just(shape),
        dtypes=dtypes,
        layouts=WRITABLE,
        slots=(0, 1, None),
        grads=(False,),
        moved=False,
    )
    return PublicCall("comm.gather", {"tensors": specs, "dim": dim, "out": draw(out)})


def dense(shape: tuple[int, ...] = (4, 3), slot: int | None = 0, **fields: object) -> TensorSpec:
    """Return the description of a float32 tensor. ``fields`` are other fields of `TensorSpec`."""
    return TensorSpec(shape, slot=slot, **fields)  # type: ignore[arg-type]  # checked by the class


#: A sparse matrix on the first device with one stored element.
SPARSE = SparseSpec()
