"""Fixtures that start pools of processes."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.rank_pool import Pool

#: Number of processes in the shared pool. On a machine with two cores, more processes would wait.
MAX_RANKS = 4
#: The files with functions that run on ranks.
MODULES = [f"{__package__}.{path.stem}" for path in Path(__file__).parent.glob("test_*.py")]


@pytest.fixture(scope="session")
def pool() -> Iterator[Pool]:
    """Yield the pool that all tests share."""
    shared = Pool(MAX_RANKS, MODULES)
    yield shared
    shared.close()


@pytest.fixture
def start_pool() -> Iterator[Callable[[int], Pool]]:
    """Yield a function that starts a pool for one test. The test may kill the processes."""
    pools: list[Pool] = []

    def start(size: int) -> Pool:
        pools.append(Pool(size, MODULES))
        return pools[-1]

    yield start
    for started in pools:
        started.close()
