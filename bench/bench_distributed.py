"""The cost of impl.distributed compared with DistributedDataParallel.

Wall time of one step, forward and backward, until every rank has its gradients, including the call
of the ranks. Both use buckets of the same size. DistributedDataParallel (`reference`) gets each
rank's rows. impl gets the whole batch and returns the whole output, a classifier's, on every rank.
Bytes are those that a rank passes to collectives in one step. They exclude one integer per
parameter, with which both libraries exchange whether the parameter was used.
"""

import pytest

from bench import ranks
from spec_tests.distributed.pool import Pool

from .libraries import LIBRARIES

LAYERS, WIDTH, BUCKET_MB = 12, 512, 2.0
#: Bytes of the gradients; both libraries must all-reduce exactly these.
GRADIENTS = 4 * (LAYERS * (WIDTH * WIDTH + WIDTH) + ranks.CLASSES * (WIDTH + 1))


@pytest.fixture(scope="module")
def pool():
    """Yield the processes of all benchmarks."""
    processes = Pool("impl", {}, 4)
    yield processes
    processes.close()


@pytest.mark.parametrize("rows", [256, 1024])
@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("library", list(LIBRARIES))
def bench_step(benchmark, pool, library, size, rows):
    benchmark.group = f"distributed step ranks={size} rows={rows}"
    benchmark.extra_info["library"] = library
    pool.run(size, ranks.prepare, library, LAYERS, WIDTH, rows, BUCKET_MB)
    # DistributedDataParallel rebuilds its buckets after the first step.
    pool.run(size, ranks.step)

    sums = benchmark(pool.run, size, ranks.step)

    assert len(set(sums)) == 1
    sent = pool.run(size, ranks.count_bytes_sent)[0]
    assert sent["all_reduce"] == GRADIENTS
    benchmark.extra_info["bytes"] = sent
