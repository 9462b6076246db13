"""Calls that both comm and functions refuse, with the values in their errors."""

from collections.abc import Mapping, Sequence
from typing import Any

from spec_tests.strategies.calls import DeviceAt, KeywordCall
from spec_tests.strategies.comm import dense
from spec_tests.strategies.tensors import TensorSpec

#: The range of ``dim`` for a tensor with two dimensions.
RANGE = {"low": -2, "high": 1}


def scatter_to_own_device(tensor: TensorSpec | None = None, **arguments: object) -> KeywordCall:
    """Return a call of ``scatter`` to two chunks on the device of a tensor of four rows."""
    options = {"devices": (DeviceAt(0), DeviceAt(0)), "chunk_sizes": None, "dim": 0, **arguments}
    return KeywordCall("comm.scatter", {"tensor": tensor or dense((4, 2)), **options})


#: For each clause of comm: calls that ``Scatter`` refuses, too, each with the values in its error.
REFUSED_SCATTERS: Mapping[str, Sequence[tuple[KeywordCall, dict[str, Any]]]] = {
    "comm.scatter.refuses-no-devices": [
        (scatter_to_own_device(dense((4, 2), slot), devices=[], chunk_sizes=sizes, dim=dim), {})
        for slot in (0, None)
        for sizes in (None, [], [4])
        for dim in (0, 7)
    ],
    "comm.scatter.refuses-other-count": [
        (scatter_to_own_device(chunk_sizes=[4], dim=dim), {"devices": 2, "sizes": 1})
        for dim in (0, 7)
    ],
    "comm.scatter.refuses-scalars": [
        (scatter_to_own_device(dense(()), chunk_sizes=sizes, dim=dim), {"operation": operation})
        for sizes, operation in ((None, "chunk"), ([1, 0], "split"))
        for dim in (0, -1)
    ],
    "comm.scatter.refuses-missing-dimension": [
        (scatter_to_own_device(chunk_sizes=sizes, dim=dim), RANGE | {"dim": dim})
        for sizes in (None, [2, 2], [9, 9])
        for dim in (2, -3)
    ],
    "comm.scatter.refuses-negative-sizes": [
        (scatter_to_own_device(chunk_sizes=[-1, 5]), {"sizes": [-1, 5]})
    ],
    "comm.scatter.refuses-wrong-total": [
        (
            scatter_to_own_device(chunk_sizes=[2, 1], dim=dim),
            {"extent": 4, "dim": 0, "sizes": [2, 1]},
        )
        for dim in (0, -2)
    ],
    "comm.scatter.refuses-negative-ordinal": [
        (scatter_to_own_device(devices=[DeviceAt(0), -1]), {"ordinal": -1})
    ],
}
#: Chunks that cannot be joined along a ``dim`` because a shape differs, with the values in the
#: error of ``comm.gather``.
OTHER_SHAPES = [
    ((dense(), dense((2, 5))), dim, {"index": 1, "shape": [2, 5], "expected": expected})
    for dim, expected in ((0, [2, 3]), (-1, [4, 5]))
]
#: The same for chunks with different numbers of dimensions.
OTHER_DIMENSIONS = [
    ((dense(), dense(shape)), 0, {"index": 1, "count": len(shape), "expected": 2})
    for shape in ((4,), (4, 3, 1))
]
