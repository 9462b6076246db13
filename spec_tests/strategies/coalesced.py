"""Calls of broadcast_coalesced, reduce_add and reduce_add_coalesced.

These calls are not drawn, because they show known divergences of the reference:

* CO-1: broadcast_coalesced of complex tensors, for which the reference returns real views,
* CO-4: broadcast_coalesced to a repeated device, and reduce_add_coalesced of a single list: the
  reference sometimes returns views of the input.
"""

from collections.abc import Sequence

import torch
from hypothesis import strategies as st

from spec_tests.harness.environment.capabilities import offered, offers
from spec_tests.strategies.calls import (
    SAME_SHAPE,
    DistinctDevices,
    PublicCall,
    on_any_device,
    repeated,
)
from spec_tests.strategies.comm import REAL
from spec_tests.strategies.devices import SPELLINGS, any_device
from spec_tests.strategies.sparse import SparseSpec, sparse_specs
from spec_tests.strategies.tensors import DTYPES, LAYOUTS, TensorSpec, shapes, tensor_specs

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
) -> PublicCall:
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
    return PublicCall("comm.broadcast_coalesced", arguments)


@on_any_device
@st.composite
def reduce_add_calls(
    draw: st.DrawFn, *, dtypes: Sequence[torch.dtype] = DTYPES, grads: Sequence[bool] = (False,)
) -> PublicCall:
    """Draw calls with addends of one shape on any devices. Shrinks to one float32 element."""
    slots = draw(st.lists(st.integers(0, 3), min_size=1, max_size=4))
    shape = st.just(draw(shapes(max_size=3)))
    dtype = [draw(st.sampled_from(offered(dtypes)))]
    inputs = [
        draw(tensor_specs(shape=shape, dtypes=dtype, slots=[slot], grads=grads, moved=False))
        for slot in slots
    ]
    arguments = {"inputs": draw(repeated(inputs)), "destination": draw(any_device(slots))}
    return PublicCall("comm.reduce_add", arguments)


@on_any_device
@st.composite
def reduce_add_coalesced_calls(draw: st.DrawFn) -> PublicCall:
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
    return PublicCall("comm.reduce_add_coalesced", arguments)


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
