"""Calls that both comm and functions refuse, and the texts of errors of several functions."""

from collections.abc import Mapping, Sequence

from spec_tests.strategies.calls import DeviceAt, KeywordCall
from spec_tests.strategies.comm import dense
from spec_tests.strategies.tensors import TensorSpec

# Texts of errors.
NO_DEVICES_TEXT = "Expected at least one device to scatter to"
NEGATIVE_TEXT = "Expected non-negative device index, but got -1"
OTHER_DEVICE_TEXT = "All tensors must be on devices[0]: {{ordinals[{}]}}"
LEAF_TEXT = "a leaf Variable that requires grad is being used in an in-place operation."
CPU_BROADCAST_TEXT = "Broadcast function not implemented for CPU tensors"
CPU_ADDEND_TEXT = "reduce_add expects all inputs to be on GPUs, but input {} is on CPU"
DESTINATION_TEXT = "reduce_add expects destination to be on the same GPU with one of the tensors"
#: For a ``dim`` that a tensor with two dimensions lacks.
RANGE_TEXT = "Dimension out of range (expected to be in range of [-2, 1], but got {})"


def scatter_to_own_device(tensor: TensorSpec | None = None, **arguments: object) -> KeywordCall:
    """Return a call of ``scatter`` to two chunks on the device of a tensor of four rows."""
    options = {"devices": (DeviceAt(0), DeviceAt(0)), "chunk_sizes": None, "dim": 0, **arguments}
    return KeywordCall("comm.scatter", {"tensor": tensor or dense((4, 2)), **options})


#: For each reason: calls of ``scatter`` that comm and functions refuse for this reason, each with
#: the class and the text of the error.
REFUSED_SCATTERS: Mapping[str, Sequence[tuple[KeywordCall, type[Exception], str]]] = {
    "no devices": [
        (
            scatter_to_own_device(dense((4, 2), slot), devices=[], chunk_sizes=sizes, dim=dim),
            RuntimeError,
            NO_DEVICES_TEXT,
        )
        for slot in (0, None)
        for sizes in (None, [], [4])
        for dim in (0, 7)
    ],
    "other count": [
        (
            scatter_to_own_device(chunk_sizes=[4], dim=dim),
            RuntimeError,
            "Expected devices and chunk_sizes to be of same length, "
            "but got len(devices) = 2 and len(chunk_sizes) = 1",
        )
        for dim in (0, 7)
    ],
    "scalar": [
        (
            scatter_to_own_device(dense(()), chunk_sizes=sizes, dim=dim),
            RuntimeError,
            f"{verb} expects at least a 1-dimensional tensor",
        )
        for sizes, verb in ((None, "chunk"), ([1, 0], "split"))
        for dim in (0, -1)
    ],
    "missing dimension": [
        (scatter_to_own_device(chunk_sizes=sizes, dim=dim), IndexError, RANGE_TEXT.format(dim))
        for sizes in (None, [2, 2], [9, 9])
        for dim in (2, -3)
    ],
    "negative size": [
        (
            scatter_to_own_device(chunk_sizes=[-1, 5]),
            RuntimeError,
            "split_with_sizes expects split_sizes have only non-negative entries, "
            "but got split_sizes=[-1, 5]",
        )
    ],
    "wrong total": [
        (
            scatter_to_own_device(chunk_sizes=[2, 1], dim=dim),
            RuntimeError,
            "split_with_sizes expects split_sizes to sum exactly to 4 "
            "(input tensor's size at dimension 0), but got split_sizes=[2, 1]",
        )
        for dim in (0, -2)
    ],
    "negative ordinal": [
        (scatter_to_own_device(devices=[DeviceAt(0), -1]), RuntimeError, NEGATIVE_TEXT)
    ],
}
#: Chunks that cannot be joined along a ``dim`` because a shape differs, and the text of the error.
OTHER_SHAPES = [
    (
        (dense(), dense((2, 5))),
        dim,
        f"Input tensor at index 1 has invalid shape [2, 5], but expected {expected}",
    )
    for dim, expected in ((0, [2, 3]), (-1, [4, 5]))
]
#: The same for chunks with different numbers of dimensions.
OTHER_DIMENSIONS = [
    (
        (dense(), dense(shape)),
        0,
        "Expected all input tensors to have the same number of dimensions, "
        f"but tensor at index 1 has {len(shape)} dimensions, (expected 2)",
    )
    for shape in ((4,), (4, 3, 1))
]
