"""Rounds of jobs in several threads, and what must hold when a round has ended."""

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
from .sharing import Shared

__all__ = ["Found", "Look", "grown", "run_rounds"]

#: Seconds a round; most calls are a few milliseconds.
ROUND = 1.0
#: Seconds after which a round that should have ended is taken to hang, and ends the process.
PATIENCE = 60
#: Rounds before growth is looked for: caches fill, threads are kept.
WARM_UP = 3
#: What counts as growth, by what is counted: the last third of the rounds against the first.
MARGINS = {"objects": 1.01, "device_bytes": 1.0, "threads": 1.2, "resident_mib": 1.15}


class Look(NamedTuple):
    """What there is when a round has ended and the collector has run."""

    threads: int
    objects: int
    device_bytes: int
    resident_mib: float


@dataclass
class Found:
    """What came of all rounds.

    Attributes:
        jobs: How many of each kind have ended well.
        wrong: What has gone wrong, as texts.
        looks: One after each round.
    """

    jobs: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)


def run_rounds(shared: Shared, seconds: float, threads: range, seed: int) -> Iterator[Found]:
    """Run rounds until the time is up or something is wrong; yield after each."""
    rng, found = random.Random(seed), Found()
    # The same threads in all rounds. PyTorch 2.12 may crash or hang where a thread ends on
    # free-threaded Python while tensors that it has made are being let go of (impl/README.md).
    pool = ThreadPoolExecutor(max(threads))
    meeting = threading.Barrier(max(threads))
    wait([pool.submit(meeting.wait) for _ in range(max(threads))])
    end = time.monotonic() + seconds
    while time.monotonic() < end and not found.wrong:
        with _no_longer_than(PATIENCE):
            _run_round(shared, rng, rng.choice(threads), found, pool)
            found.looks.append(_look(shared))
        _check_between(shared, found)
        yield found
    found.wrong += grown(found.looks)


@contextmanager
def _no_longer_than(seconds: float) -> Iterator[None]:
    """Show where all threads are, and end the process, if a block lasts too long."""
    faulthandler.dump_traceback_later(seconds, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def _run_round(
    shared: Shared, rng: random.Random, count: int, found: Found, pool: Executor
) -> None:
    """For one half all threads do the same, so that what it shares is asked for at one time."""
    barrier, begin, same = threading.Barrier(count), time.monotonic(), rng.choice([*JOBS])
    results: list[tuple[Counter[str], list[str]]] = []

    def serve(seed: int) -> None:
        mine, jobs, wrong = random.Random(seed), Counter[str](), list[str]()
        barrier.wait()
        while (passed := time.monotonic() - begin) < ROUND and not wrong:
            name = same if passed < ROUND / 2 else mine.choice([*JOBS])
            try:
                JOBS[name](shared, mine)
            except BaseException:
                wrong.append(f"{name} (seed {seed}): {traceback.format_exc()}")
            else:
                jobs[name] += 1
        results.append((jobs, wrong))

    with _noting(found), shared.held_by_all():
        wait([pool.submit(serve, rng.getrandbits(32)) for _ in range(count)])
    for jobs, wrong in results:
        found.jobs += jobs
        found.wrong += wrong


@contextmanager
def _noting(found: Found) -> Iterator[None]:
    try:
        yield
    except AssertionError as error:
        found.wrong.append(str(error))


def _check_between(shared: Shared, found: Found) -> None:
    with _noting(found):
        shared.check_nothing_is_left()
        if not gc.isenabled():
            raise AssertionError("the collector is off, and no block lasts")


def _look(shared: Shared) -> Look:
    # Twice: what the first run frees may have kept something.
    gc.collect()
    gc.collect()
    return Look(
        threading.active_count(),
        len(gc.get_objects()),
        sum(map(torch.accelerator.memory_allocated, {each.index for each in shared.devices})),
        _resident_mib(),
    )


def _resident_mib() -> float:
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * 4096 / 2**20
    except OSError:  # Not Linux.
        return 0.0


def grown(looks: Sequence[Look]) -> Iterator[str]:
    """Tell what there is more of in every one of the last rounds than in any of the first."""
    rest = looks[WARM_UP:]
    third = len(rest) // 3
    for name, margin in MARGINS.items() if third else ():
        first = max(getattr(look, name) for look in rest[:third])
        last = min(getattr(look, name) for look in rest[-third:])
        if last > first * margin:
            yield f"growth: {name} were {first} at most at first, and are {last} at least now"
