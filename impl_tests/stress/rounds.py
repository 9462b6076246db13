"""Rounds of jobs in several threads, and checks between two rounds."""

import faulthandler
import gc
import random
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from .jobs import JOBS
from .sharing import SharedModules

__all__ = ["Results", "Snapshot", "find_growth", "run_rounds"]

#: Seconds that a round lasts. Most jobs take a few milliseconds.
ROUND = 1.0
#: Seconds after which a round counts as hung and the process exits.
TIMEOUT = 60
#: The number of rounds before growth is measured. In these rounds caches fill and threads start.
WARM_UP = 3
#: The minimum number of rounds in a third of the run. In shorter runs growth is not measured:
#: single rounds differ at random, for example in the number of idle workers.
MIN_ROUNDS = 3
#: For each resource: the largest allowed ratio of the minimum in the last third of the rounds to
#: the maximum in the first third.
MAX_GROWTH = {"objects": 1.01, "device_bytes": 1.0, "threads": 1.2, "resident_mib": 1.15}


class Snapshot(NamedTuple):
    """The resources that are in use between two rounds, after a garbage collection."""

    threads: int
    objects: int
    device_bytes: int
    resident_mib: float


@dataclass
class Results:
    """The results of all rounds.

    Attributes:
        jobs: Name of a job -> number of calls that succeeded.
        errors: The texts of all errors.
        snapshots: The resources in use after each round.
    """

    jobs: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)
    snapshots: list[Snapshot] = field(default_factory=list)


def run_rounds(
    shared: SharedModules, seconds: float, threads: range, seed: int
) -> Iterator[Results]:
    """Run rounds for ``seconds`` or until a check fails; yield the results after each round.

    Args:
        shared: The modules that all threads use.
        seconds: The duration of all rounds.
        threads: The possible numbers of threads in a round.
        seed: The seed of the random choices.
    """
    rng, results = random.Random(seed), Results()
    # All rounds use the same threads. On free-threaded Python, PyTorch 2.12 may crash or hang if a
    # thread ends while tensors that it has created are freed (impl/decisions/shared-state.md).
    pool = ThreadPoolExecutor(max(threads))
    barrier = threading.Barrier(max(threads))
    wait([pool.submit(barrier.wait) for _ in range(max(threads))])
    end = time.monotonic() + seconds
    while time.monotonic() < end and not results.errors:
        with _exit_after(TIMEOUT):
            _run_round(shared, rng, rng.choice(threads), results, pool)
            results.snapshots.append(_take_snapshot(shared))
        _check_idle(shared, results)
        yield results
    results.errors += find_growth(results.snapshots)


@contextmanager
def _exit_after(seconds: float) -> Iterator[None]:
    """Print the stacks of all threads and exit if the block takes longer than ``seconds``."""
    faulthandler.dump_traceback_later(seconds, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def _run_round(
    shared: SharedModules, rng: random.Random, count: int, results: Results, pool: Executor
) -> None:
    """Run a round in ``count`` threads.

    In the first half of the round all threads run the same job, to provoke data races.
    """
    barrier, start, common = threading.Barrier(count), time.monotonic(), rng.choice([*JOBS])
    outcomes: list[tuple[Counter[str], list[str]]] = []

    def work(seed: int) -> None:
        thread_rng, jobs, errors = random.Random(seed), Counter[str](), list[str]()
        barrier.wait()
        while (passed := time.monotonic() - start) < ROUND and not errors:
            name = common if passed < ROUND / 2 else thread_rng.choice([*JOBS])
            try:
                JOBS[name](shared, thread_rng)
            except BaseException:
                errors.append(f"{name} (seed {seed}): {traceback.format_exc()}")
            else:
                jobs[name] += 1
        outcomes.append((jobs, errors))

    with _record_errors(results), shared.hold():
        wait([pool.submit(work, rng.getrandbits(32)) for _ in range(count)])
    for jobs, errors in outcomes:
        results.jobs += jobs
        results.errors += errors


@contextmanager
def _record_errors(results: Results) -> Iterator[None]:
    """Catch an AssertionError inside a ``with`` block, and append its text to the results."""
    try:
        yield
    except AssertionError as error:
        results.errors.append(str(error))


def _check_idle(shared: SharedModules, results: Results) -> None:
    """Check that impl caches no replicas and does not pause the garbage collector."""
    with _record_errors(results):
        shared.check_caches_are_empty()
        if not gc.isenabled():
            raise AssertionError("the garbage collector is off outside of pause_gc")


def _take_snapshot(shared: SharedModules) -> Snapshot:
    # A finalizer in the first collection may create garbage for the second collection.
    gc.collect()
    gc.collect()
    return Snapshot(
        threading.active_count(),
        len(gc.get_objects()),
        sum(map(torch.accelerator.memory_allocated, {device.index for device in shared.devices})),
        _resident_mib(),
    )


def _resident_mib() -> float:
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * 4096 / 2**20
    except OSError:  # Not Linux.
        return 0.0


def find_growth(snapshots: Sequence[Snapshot]) -> Iterator[str]:
    """Yield an error text for each resource that has grown by more than ``MAX_GROWTH``."""
    measured = snapshots[WARM_UP:]
    third = len(measured) // 3
    for name, ratio in MAX_GROWTH.items() if third >= MIN_ROUNDS else ():
        first = max(getattr(snapshot, name) for snapshot in measured[:third])
        last = min(getattr(snapshot, name) for snapshot in measured[-third:])
        if last > first * ratio:
            yield f"growth: {name} were at most {first} in the first rounds, at least {last} later"
