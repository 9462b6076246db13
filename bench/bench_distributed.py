"""The time and the communication of impl.distributed, compared with DistributedDataParallel.

Times are wall times of one step, forward and backward, until every rank has its gradients. A time
includes sending the call to the ranks' processes. Both libraries use buckets of the same size.
DistributedDataParallel (`reference`) gets each rank's rows. impl gets the whole batch and returns
the whole output of a classifier on every rank. `bytes` counts the bytes that a rank passes to each
collective in one step. It does not count one integer per parameter, by which a rank tells the
other ranks in both libraries whether it used the parameter.
"""

import pytest

from bench import ranks
from spec_tests.distributed.pool import Pool

from .libraries import LIBRARIES

LAYERS, WIDTH, BUCKET_MB = 12, 512, 2.0
#: Bytes of all gradients. Both libraries must all-reduce exactly this number of bytes.
GRADIENT_BYTES = 4 * (LAYERS * (WIDTH * WIDTH + WIDTH) + ranks.CLASSES * (WIDTH + 1))


@pytest.fixture(scope="module")
def pool():
    """Yield the process pool that all benchmarks share."""
    processes = Pool("impl", {}, 4)
    yield processes
    processes.close()


@pytest.mark.parametrize("rows", [256, 1024])
@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("library", list(LIBRARIES))
def bench_step(benchmark, pool, library, size, rows):
    benchmark.group = f"distributed step ranks={size} rows={rows}"
    benchmark.extra_info["library"] = library
    pool.run(size, ranks.build_module_and_batch, library, LAYERS, WIDTH, rows, BUCKET_MB)
    # DistributedDataParallel rebuilds its buckets after the first step.
    pool.run(size, ranks.run_step)

    sums = benchmark(pool.run, size, ranks.run_step)

    assert len(set(sums)) == 1
    sent = pool.run(size, ranks.count_bytes_sent)[0]
    assert sent["all_reduce"] == GRADIENT_BYTES
    benchmark.extra_info["bytes"] = sent
