"""Calls that move or sum many tensors at once.

broadcast_coalesced is given no complex tensors, for the reference returns real views of them
(divergence CO-1). Its devices differ pairwise, for on a repeated device the reference sometimes
aliases its input (divergence CO-4); so it does in reduce_add_coalesced of one list, hence two.
"""

from collections.abc import Sequence

import torch
from hypothesis import strategies as st

from spec_tests.strategies.calls import At, PublicCall, Unlike
from spec_tests.strategies.comm import REAL, SPELLINGS
from spec_tests.strategies.sparse import SparseSpec, sparse_specs
from spec_tests.strategies.tensors import DTYPES, LAYOUTS, TensorSpec, shapes, tensor_specs

#: Bytes; from one transfer for all to one a tensor.
BUFFER_SIZES = (10 * 2**20, 64, 16, 1, 0)


def _destinations(slots: Sequence[int]) -> st.SearchStrategy[At]:
    return st.builds(At, st.sampled_from(slots), st.sampled_from(SPELLINGS))


def _dense(slots: Sequence[int], grads: Sequence[bool]) -> st.SearchStrategy[TensorSpec]:
    return tensor_specs(shape=shapes(max_size=3), dtypes=REAL, slots=slots, grads=grads)


@st.composite
def broadcast_coalesced_calls(
    draw: st.DrawFn, *, grads: Sequence[bool] = (False, True), sparse: bool = True
) -> PublicCall:
    """Dense and sparse tensors of any dtypes. Shrinks to one float32; no tensor comes last."""
    slots = tuple(draw(st.lists(st.integers(0, 3), min_size=1, max_size=4, unique=True)))
    home = slots[:1]
    spec: st.SearchStrategy[TensorSpec | SparseSpec] = _dense(home, grads)
    if sparse:
        spec = st.one_of(spec, sparse_specs(slots=home))
    count = draw(st.sampled_from([1, 2, 3, 5, 0]))
    arguments: dict[str, object] = {
        "tensors": draw(st.lists(spec, min_size=count, max_size=count)),
        "devices": Unlike(slots),
        "buffer_size": draw(st.sampled_from(BUFFER_SIZES)),
    }
    return PublicCall("comm.broadcast_coalesced", arguments)


@st.composite
def reduce_add_calls(
    draw: st.DrawFn, *, dtypes: Sequence[torch.dtype] = DTYPES, grads: Sequence[bool] = (False,)
) -> PublicCall:
    """Equal shapes on any devices. Shrinks to one float32 of one element."""
    slots = draw(st.lists(st.integers(0, 3), min_size=1, max_size=4))
    shape = st.just(draw(shapes(max_size=3)))
    dtype = [draw(st.sampled_from(dtypes))]
    inputs = [
        draw(tensor_specs(shape=shape, dtypes=dtype, slots=[slot], grads=grads)) for slot in slots
    ]
    arguments = {"inputs": inputs, "destination": draw(_destinations(slots))}
    return PublicCall("comm.reduce_add", arguments)


@st.composite
def reduce_add_coalesced_calls(draw: st.DrawFn) -> PublicCall:
    """As many rows as devices, equal in their shapes. Shrinks to two rows of one float32."""
    slots = draw(st.lists(st.integers(0, 3), min_size=2, max_size=4))
    columns = draw(st.lists(st.tuples(shapes(max_size=3), st.sampled_from(DTYPES)), max_size=4))
    layout = st.sampled_from(LAYOUTS)
    rows = [
        [TensorSpec(shape, dtype, draw(layout), slot=slot) for shape, dtype in columns]
        for slot in slots
    ]
    arguments: dict[str, object] = {
        "inputs": rows,
        "destination": draw(_destinations(slots)),
        "buffer_size": draw(st.sampled_from(BUFFER_SIZES)),
    }
    return PublicCall("comm.reduce_add_coalesced", arguments)


@st.composite
def mixed_rows(draw: st.DrawFn) -> list[list[TensorSpec | SparseSpec]]:
    """Rows whose positions are dense, sparse, or dense on some devices only."""
    slots = draw(st.lists(st.integers(0, 3), min_size=2, max_size=3))
    kinds = draw(st.lists(st.sampled_from(["sparse", "mixed", "dense"]), min_size=1, max_size=4))
    return [[draw(_member(kind, row, slot)) for kind in kinds] for row, slot in enumerate(slots)]


def _member(kind: str, row: int, slot: int) -> st.SearchStrategy[TensorSpec | SparseSpec]:
    shape = (3, 2)
    if kind == "sparse" or (kind == "mixed" and row % 2 == 1):
        return sparse_specs(dtypes=(torch.float32,), shape=shape, slots=[slot])
    return st.just(TensorSpec(shape, slot=slot))
