"""The time and the communication of impl.distributed, compared with DistributedDataParallel.

Times are wall times of one step, forward and backward, until every rank has its gradients. A time
includes sending the call to the ranks' processes. Both libraries use buckets of the same size.
DistributedDataParallel (`reference`) gets each rank's rows. impl gets the whole batch and returns
the whole output of a classifier on every rank. `bytes` counts the bytes that a rank passes to each
collective in one step. In both libraries the ranks also exchange one integer per parameter, which
says whether a rank used the parameter. `bytes` does not count these integers.
"""

from functools import partial

import pytest

from . import ranks
from .rank_pool import Pool

pytestmark = pytest.mark.usefixtures("impl_only")
LIBRARIES = ("reference", "impl")
LAYERS, WIDTH, BUCKET_MB = 12, 512, 2.0
#: Bytes of all gradients. Both libraries must all-reduce exactly this number of bytes.
GRADIENT_BYTES = 4 * (LAYERS * (WIDTH * WIDTH + WIDTH) + ranks.CLASSES * (WIDTH + 1))


@pytest.fixture(scope="module")
def pool():
    """Yield the process pool that all benchmarks share."""
    processes = Pool(4)
    yield processes
    processes.close()


@pytest.mark.parametrize("rows", [256, 1024])
@pytest.mark.parametrize("size", [1, 2, 4])
def bench_step(time_alternately, benchmark, pool, size, rows):
    benchmark.group = f"distributed step ranks={size} rows={rows}"
    for library in LIBRARIES:
        pool.run(size, ranks.build_module_and_batch, library, LAYERS, WIDTH, rows, BUCKET_MB)
    # DistributedDataParallel rebuilds its buckets after the first step.
    steps = {library: partial(pool.run, size, ranks.run_step, library) for library in LIBRARIES}
    for step in steps.values():
        step()
    sent = {library: pool.run(size, ranks.count_bytes_sent, library)[0] for library in LIBRARIES}

    time_alternately(steps, **{library: {"bytes": sent[library]} for library in LIBRARIES})

    for library in LIBRARIES:
        assert len(set(steps[library]())) == 1
        assert sent[library]["all_reduce"] == GRADIENT_BYTES
