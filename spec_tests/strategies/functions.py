"""Calls of the autograd Functions.

These calls are not drawn, because they show known divergences of the reference:

* CO-2: complex tensors with a negative ``dim`` or beside real tensors, and channels-last complex
  tensors in Gather,
* FN-3: inputs on the CPU that require a gradient,
* FN-4: chunks on the CPU in Gather,
* CO-4: repeated devices in Broadcast,
* FN-5: sums whose first addend is not on the destination.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from hypothesis import strategies as st

from spec_tests.machine.capabilities import offered, offered_groups
from spec_tests.strategies.calls import (
    SAME_SHAPE,
    SPELLINGS,
    ApplyCall,
    DistinctDevices,
    KeywordCall,
    any_device,
    on_any_device,
    repeated,
)
from spec_tests.strategies.comm import REAL, VIEWS, chunk_specs, scatter_calls, split_extents
from spec_tests.strategies.tensors import (
    COMPLEX,
    DTYPES,
    LAYOUTS,
    TensorSpec,
    one_or_all,
    shapes,
    tensor_specs,
)


def scatter_applies(
    *,
    dtypes: Sequence[torch.dtype] = DTYPES,
    grads: Sequence[bool] = (False, True),
    slots: Sequence[int | None] = (0, 1),
) -> st.SearchStrategy[ApplyCall]:
    """Draw calls of Scatter. Shrinks to one chunk of one element."""
    return scatter_calls(dtypes=dtypes, grads=grads, slots=slots).map(scatter_apply)


def scatter_apply(call: KeywordCall) -> ApplyCall:
    """Return the call of Scatter that is like a call of comm.scatter."""
    arguments: Mapping[str, Any] = call.arguments
    tensor, dim = arguments["tensor"], arguments["dim"]
    dim = dim % len(tensor.shape) if tensor.dtype.is_complex else dim
    settings = (arguments["devices"], arguments["chunk_sizes"], dim)
    return ApplyCall("Scatter", settings, (tensor,), call.current)


@on_any_device
@st.composite
def gather_applies(
    draw: st.DrawFn,
    *,
    dtype_groups: Sequence[Sequence[torch.dtype]] = (REAL, COMPLEX),
    grads: Sequence[bool] = (False, True),
) -> ApplyCall:
    """Draw calls of Gather with real or complex chunks. Shrinks to one chunk of one element."""
    before, _, after = extents = draw(split_extents())
    group = draw(st.sampled_from(offered_groups(dtype_groups)))
    dtypes = draw(one_or_all(group))
    layouts = [name for name in LAYOUTS if name != "channels_last" or group is not COMPLEX]
    moved = len(dtypes) == 1
    options = {"dtypes": dtypes, "layouts": layouts, "grads": grads, "moved": moved}
    specs = draw(chunk_specs(extents, **options))
    dim = draw(_dim_arguments(len(before), len(before) + 1 + len(after), specs))
    tensors = draw(repeated(specs, _views(grads, SAME_SHAPE)))
    return ApplyCall("Gather", (draw(_target_devices()), dim), tuple(tensors))


def _views(grads: Sequence[bool], views: Sequence[str]) -> Sequence[str]:
    """Return ``views``, without those that require no gradient if all tensors require one."""
    return views if False in grads else [""]


@on_any_device
@st.composite
def scalar_gathers(draw: st.DrawFn) -> ApplyCall:
    """Draw calls of Gather with 0-dim tensors along dim 0. Shrinks to one float32 element."""
    dtypes = draw(one_or_all(draw(st.sampled_from(offered_groups([REAL, COMPLEX])))))
    moved = len(dtypes) == 1
    spec = tensor_specs(shape=st.just(()), dtypes=dtypes, slots=range(4), moved=moved)
    specs = draw(st.lists(spec, min_size=1, max_size=4))
    return ApplyCall("Gather", (draw(_target_devices()), 0), tuple(draw(repeated(specs))))


@on_any_device
@st.composite
def broadcast_applies(
    draw: st.DrawFn,
    *,
    dtype_groups: Sequence[Sequence[torch.dtype]] = (REAL, COMPLEX),
    grads: Sequence[bool] = (False, True),
    counts: Sequence[int] = (1, 2, 3, 4, 0),
) -> ApplyCall:
    """Draw calls of Broadcast with dense tensors to distinct devices.

    Shrinks to one float32 element.
    """
    slots = tuple(draw(st.lists(st.integers(0, 3), min_size=1, max_size=4, unique=True)))
    count = draw(st.sampled_from(counts))
    shape, dtypes = (
        shapes(min_dims=0, max_size=3),
        draw(st.sampled_from(offered_groups(dtype_groups))),
    )
    spec = tensor_specs(shape=shape, dtypes=dtypes, slots=slots[:1], grads=grads)
    specs = draw(st.lists(spec, min_size=count, max_size=count))
    tensors = draw(repeated(specs, _views(grads, VIEWS)))
    return ApplyCall(
        "Broadcast", (DistinctDevices(slots, draw(st.sampled_from(SPELLINGS))),), tuple(tensors)
    )


@on_any_device
@st.composite
def reduce_applies(draw: st.DrawFn) -> ApplyCall:
    """Draw calls of ReduceAddCoalesced with dense tensors.

    Shrinks to two devices with one float32 element each.
    """
    slots = draw(st.lists(st.integers(0, 3), min_size=2, max_size=4))
    dtypes = draw(st.sampled_from(offered_groups([REAL, COMPLEX])))
    column = st.tuples(shapes(max_size=3), st.sampled_from(offered(dtypes)))
    columns = draw(st.lists(column, min_size=1, max_size=3))
    specs = [
        draw(tensor_specs(shape=st.just(shape), dtypes=[dtype], slots=[slot], moved=False))
        for slot in slots
        for shape, dtype in columns
    ]
    destination = draw(any_device(slots[:1]))
    return ApplyCall("ReduceAddCoalesced", (destination, len(columns)), tuple(specs))


def _target_devices() -> st.SearchStrategy[object]:
    return st.one_of(any_device(), st.sampled_from(["cpu", None]))


def _dim_arguments(
    dim: int, dim_count: int, specs: Sequence[TensorSpec]
) -> st.SearchStrategy[int]:
    is_complex = any(spec.dtype.is_complex for spec in specs)
    return st.just(dim) if is_complex else st.sampled_from([dim, dim - dim_count])
