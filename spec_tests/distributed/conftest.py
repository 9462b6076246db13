"""The processes as a fixture."""

from collections.abc import Callable, Iterator

import pytest

from spec_tests.distributed.pool import Pool
from spec_tests.harness.environment.target import Target

#: The most ranks of one group; on two cores more would only wait for each other.
MOST = 4


@pytest.fixture(scope="session")
def ranks(target: Target) -> Iterator[Pool]:
    """Processes that are started once; a target without the part is said to lack it."""
    _ = target.distributed.DataParallel
    pool = Pool(target.name, target.mapping, MOST)
    yield pool
    pool.close()


@pytest.fixture
def new_ranks(target: Target) -> Iterator[Callable[[int], Pool]]:
    """Start processes of a test's own, which it may kill."""
    _ = target.distributed.DataParallel
    pools: list[Pool] = []

    def start(size: int) -> Pool:
        pools.append(Pool(target.name, target.mapping, size))
        return pools[-1]

    yield start
    for pool in pools:
        pool.close()
