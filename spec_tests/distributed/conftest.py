"""Pools of processes as fixtures."""

from collections.abc import Callable, Iterator

import pytest

from spec_tests.distributed.pool import Pool
from spec_tests.harness.environment.target import Target

#: Ranks of the largest group. On two cores more ranks only wait for each other.
MAX_RANKS = 4


@pytest.fixture(scope="session")
def ranks(target: Target) -> Iterator[Pool]:
    """Pool of processes that all tests share; fails if the target lacks ``distributed``."""
    _ = target.distributed.DataParallel
    pool = Pool(target.name, target.mapping, MAX_RANKS)
    yield pool
    pool.close()


@pytest.fixture
def new_ranks(target: Target) -> Iterator[Callable[[int], Pool]]:
    """Factory of pools for one test, which may kill their processes."""
    _ = target.distributed.DataParallel
    pools: list[Pool] = []

    def start(size: int) -> Pool:
        pools.append(Pool(target.name, target.mapping, size))
        return pools[-1]

    yield start
    for pool in pools:
        pool.close()
