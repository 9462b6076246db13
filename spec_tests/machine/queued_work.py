"""Queue work that keeps a stream of a real device busy for some time: products of matrices."""

import math
import time
from functools import cache

import torch
from torch import Tensor

#: The text about devices on which a test of the order of work always passes.
SYNCHRONOUS = "operators are synchronous: no test shows the order of work"

#: The least duration in milliseconds of one product. It hides the time to queue the product.
_LEAST = 10.0
#: The smallest and the largest number of rows of the matrix.
_ROWS = (256, 8192)


def queue_work(device: torch.device, milliseconds: float) -> None:
    """Queue work that takes ``milliseconds`` on the current stream of ``device``; do not wait.

    The simulator has no delay: an operator has finished when it returns. Its race detector finds
    reads that come too early.
    """
    if device.type == "sim":
        return
    matrix, duration = _find_product(device)
    for _ in range(math.ceil(milliseconds / duration)):
        matrix @ matrix


@cache
def _find_product(device: torch.device) -> tuple[Tensor, float]:
    """Return a square matrix, and the milliseconds of its product with itself on ``device``."""
    rows, most_rows = _ROWS
    while True:
        matrix = torch.zeros(rows, rows, device=device)
        duration = min(_measure(matrix) for _ in range(5))
        if duration >= _LEAST or rows == most_rows:
            return matrix, duration
        rows *= 2


def _measure(matrix: Tensor) -> float:
    torch.accelerator.synchronize(matrix.device)
    start = time.perf_counter()
    matrix @ matrix
    torch.accelerator.synchronize(matrix.device)
    return (time.perf_counter() - start) * 1000
