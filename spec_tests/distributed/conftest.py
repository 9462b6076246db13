"""Fixtures that start pools of processes."""

from collections.abc import Callable, Iterator

import pytest

from spec_tests.distributed.pool import Pool
from spec_tests.harness.environment.target import Target

#: Number of processes in the shared pool. On a machine with two cores, more processes would wait.
MAX_RANKS = 4


@pytest.fixture(scope="session")
def pool(target: Target) -> Iterator[Pool]:
    """Yield the pool that all tests share. Fail if the target lacks ``distributed``."""
    _ = target.distributed.DataParallel
    shared = Pool(target.name, target.mapping, MAX_RANKS)
    yield shared
    shared.close()


@pytest.fixture
def start_pool(target: Target) -> Iterator[Callable[[int], Pool]]:
    """Yield a function that starts a pool for one test. The test may kill the processes."""
    _ = target.distributed.DataParallel
    pools: list[Pool] = []

    def start(size: int) -> Pool:
        pools.append(Pool(target.name, target.mapping, size))
        return pools[-1]

    yield start
    for started in pools:
        started.close()
