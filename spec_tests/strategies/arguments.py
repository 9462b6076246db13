"""Arguments of one module: tensors, other objects, and nested containers."""

from typing import Any

import torch
from hypothesis import strategies as st

from spec_tests.strategies.containers import CONSTANTS, OPAQUE, NewObject
from spec_tests.strategies.scatter_gather import containers
from spec_tests.strategies.stateful_containers import Batch, Frozen
from spec_tests.strategies.tensors import tensor_specs

#: The kinds of named tuples.
NAMED_TUPLES = ("Pair", "Typed")


def leaves() -> st.SearchStrategy[Any]:
    """Draw arguments that are not containers. Shrinks to a tensor of one element."""
    shapes = st.sampled_from([(1,), (2, 3), (), (0,)])
    specs = tensor_specs(
        shape=shapes, dtypes=(torch.float32, torch.int64), layouts=("contiguous",)
    )
    objects = [*map(NewObject, OPAQUE), Frozen(7, (None,)), Batch]
    return specs | st.sampled_from([*CONSTANTS, *objects])


def values() -> st.SearchStrategy[Any]:
    """Draw leaves or nested containers of leaves. Shrinks to a tensor of one element."""
    return st.recursive(
        leaves(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.lists(inner, max_size=3).map(tuple)
            | containers(inner, NAMED_TUPLES)
            | st.dictionaries(st.sampled_from(["a", "b", 3]), inner, max_size=2)
        ),
        max_leaves=4,
    )


def keywords() -> st.SearchStrategy[dict[str, Any]]:
    """Draw the keyword arguments of one module. Shrinks to no argument."""
    return st.dictionaries(st.sampled_from(["x", "flag"]), values(), max_size=2)
