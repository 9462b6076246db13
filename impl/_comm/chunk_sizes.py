"""Computation of the lengths of chunks: the number of rows of each.

Weights are the public argument ``chunk_sizes``: sizes or proportions.
"""

import math
from collections.abc import Sequence

#: A computed chunk length that exceeds an integer by at most this rounding error is rounded down.
_ROUNDING = 1e-9


def chunk_lengths(extent: int, count: int, weights: Sequence[float] | None = None) -> list[int]:
    """Return at most ``count`` chunk lengths that sum to ``extent``.

    ``weights`` are either chunk sizes that sum to ``extent``, or proportions: each length is
    rounded up until no rows are left. By default every length but the last is
    ``ceil(extent / count)``. The last devices have no length if no rows are left for them. A
    device with weight 0 before them has the length 0. If ``extent`` is 0, there are ``count``
    lengths of 0.
    """
    if extent == 0:
        return [0] * count
    if weights is None:
        length = math.ceil(extent / count)
        full, remainder = divmod(extent, length)
        return [length] * full + [remainder] * (remainder > 0)
    return _weighted_lengths(extent, list(weights))


def check_weights(weights: Sequence[float], count: int) -> None:
    """Raise ValueError unless ``weights`` are ``count`` finite numbers >= 0, and one is > 0."""
    if len(weights) != count:
        raise ValueError(f"{len(weights)} chunk sizes for {count} devices")
    if not all(0 <= weight < math.inf for weight in weights):
        raise ValueError(f"negative or infinite chunk size in {list(weights)}")
    if not any(weights):
        raise ValueError(f"every chunk size is 0 in {list(weights)}")


def _weighted_lengths(extent: int, weights: Sequence[float]) -> list[int]:
    lengths: list[int] = []
    rows = extent
    for index, weight in enumerate(weights):
        share = rows * weight / sum(weights[index:])
        lengths.append(min(rows, math.ceil(share - _ROUNDING)))
        rows -= lengths[-1]
        if rows == 0:
            break
    return lengths
