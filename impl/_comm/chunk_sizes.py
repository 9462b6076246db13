"""How many rows each device gets.

Letters: ``N`` is the extent of a tensor along the dimension to split, ``k`` the number of
devices.
"""

import math
from collections.abc import Sequence

__all__ = ["check_weights", "chunk_lengths"]

#: Absorbs the rounding of a quotient that is whole in exact arithmetic.
_ROUNDING = 1e-9


def chunk_lengths(extent: int, count: int, weights: Sequence[float] | None = None) -> list[int]:
    """Share ``extent`` rows out to devices.

    Args:
        extent: ``N``, zero or more.
        count: ``k``, one or more.
        weights: ``k`` shares in proportion to which rows are dealt out, each rounded up while
            rows last; shares that sum to ``N`` are taken as they are. Without them every chunk
            but the last has ``ceil(N / k)`` rows.

    Returns:
        At most ``k`` lengths that sum to ``N``. Devices at the end that no row is left for get
        none, unless ``N`` is 0: then there are ``k`` lengths of 0.
    """
    if extent == 0:
        return [0] * count
    if weights is None:
        return _equal_lengths(extent, math.ceil(extent / count))
    return _weighted_lengths(extent, weights)


def check_weights(weights: Sequence[float], count: int) -> None:
    """Refuse weights by which nothing can be shared out.

    Raises:
        ValueError: There are not ``count`` weights, one is negative or not finite, or all are 0.
    """
    if len(weights) != count:
        raise ValueError(f"{len(weights)} chunk sizes for {count} devices")
    if not all(0 <= weight < math.inf for weight in weights):
        raise ValueError(f"negative or infinite chunk size in {list(weights)}")
    if not any(weights):
        raise ValueError(f"every chunk size is 0 in {list(weights)}")


def _equal_lengths(extent: int, length: int) -> list[int]:
    full, rest = divmod(extent, length)
    return [length] * full + [rest] * (rest > 0)


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
