"""What DataParallel's meaning over processes costs beside plain DistributedDataParallel.

Wall time of one step, forward and backward, until every rank has its gradients; the function that
a rank runs is sent to it in both cases. Both have buckets of one size. Plain
DistributedDataParallel (`reference`) is given each rank's rows; impl the whole batch, and it gives
every rank the whole output, a classifier's. Bytes are those that a rank hands to a collective in
one step, but for a word for each parameter, which says on both sides whether it was used.
"""

import pytest

from bench import ranks
from spec_tests.distributed.pool import Pool

from .libraries import LIBRARIES

LAYERS, WIDTH, BUCKET_MB = 12, 512, 2.0
#: Bytes of the gradients, which both sides must send, and no more.
GRADIENTS = 4 * (LAYERS * (WIDTH * WIDTH + WIDTH) + ranks.CLASSES * (WIDTH + 1))


@pytest.fixture(scope="module")
def pool():
    """The processes of all these benchmarks."""
    made = Pool("impl", {}, 4)
    yield made
    made.close()


@pytest.mark.parametrize("rows", [256, 1024])
@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("library", list(LIBRARIES))
def bench_step(benchmark, pool, library, size, rows):
    benchmark.group = f"distributed step ranks={size} rows={rows}"
    benchmark.extra_info["library"] = library
    pool.run(size, ranks.prepare, library, LAYERS, WIDTH, rows, BUCKET_MB)
    pool.run(size, ranks.step)  # The first builds the buckets anew.

    sums = benchmark(pool.run, size, ranks.step)

    assert len(set(sums)) == 1
    sent = pool.run(size, ranks.bytes_sent)[0]
    assert sent["all_reduce"] == GRADIENTS
    benchmark.extra_info["bytes"] = sent
