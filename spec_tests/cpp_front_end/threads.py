"""The number of threads that run C++ replicas."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def use_threads(thread_count: int) -> Iterator[None]:
    """Set the number of PyTorch's threads. With fewer threads than replicas, replicas wait."""
    before = torch.get_num_threads()
    torch.set_num_threads(thread_count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
