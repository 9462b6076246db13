"""Stress all parts of impl in many threads; fail at the first wrong result or growth."""

import argparse
import faulthandler
import gc
import os
import random
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from typing import NamedTuple

import torch

from spec_tests import simulator
from spec_tests.machine import process_state
from spec_tests.machine.devices import SIMULATED_DEVICES

from .checked_calls import CheckedCalls

__all__ = ["MIN_ROUNDS", "WARM_UP", "Resources", "find_growth"]

#: The possible numbers of threads in a round.
_THREADS = range(2, 17)
#: Seconds that a round lasts. Most calls take a few milliseconds.
_ROUND = 1.0
#: Seconds after which a round counts as hung and the process exits.
_TIMEOUT = 60
#: The number of rounds after which progress is printed.
_PROGRESS_INTERVAL = 20
#: The number of rounds before growth is measured. In these rounds caches fill and threads start.
WARM_UP = 3
#: The minimum number of rounds in a third of the run. In shorter runs growth is not measured:
#: single rounds differ at random, for example in the number of idle workers.
MIN_ROUNDS = 3
#: For each resource: the largest allowed ratio of the minimum in the last third of the rounds to
#: the maximum in the first third.
_MAX_GROWTH = {"objects": 1.01, "device_bytes": 1.0, "threads": 1.2, "resident_mib": 1.15}


class Resources(NamedTuple):
    """The resources that are in use between two rounds, after a garbage collection."""

    threads: int
    objects: int
    device_bytes: int
    resident_mib: float


def main() -> int:
    """Run until the time is up; return 1 if a check failed."""
    parser = argparse.ArgumentParser(
        prog="python -m impl_tests.weekly.stress", description=main.__doc__
    )
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", type=int)
    options = parser.parse_args()
    faulthandler.enable()
    torch.set_num_threads(1)  # The threads of the test already use all cores.
    simulator.enable(SIMULATED_DEVICES)
    was_free_threaded = not process_state.is_gil_enabled()
    seed = random.getrandbits(32) if options.seed is None else options.seed
    print(f"python {process_state.python_version()}; torch {torch.__version__}; seed {seed}")
    succeeded, errors = _run_rounds(time.monotonic() + options.minutes * 60, random.Random(seed))
    if was_free_threaded and process_state.is_gil_enabled():
        errors.append("the GIL was enabled during the run")
    for name, count in sorted(succeeded.items()):
        print(f"{count:8}  {name}")
    print("\n".join(errors) or "no wrong result, no kept replicas left, no growth")
    return int(bool(errors))


def _run_rounds(end: float, rng: random.Random) -> tuple[Counter[str], list[str]]:
    """Run rounds until the time ``end``, or until a check fails.

    Returns:
        The number of calls that succeeded, by name, and the texts of all errors.
    """
    succeeded, errors, measurements = Counter[str](), list[str](), list[Resources]()
    calls = CheckedCalls([torch.device("sim", index) for index in range(SIMULATED_DEVICES)])
    for call in calls.values():
        call(rng)  # The first call may import modules.
    # All rounds use the same threads. On free-threaded Python, PyTorch 2.12 may crash or hang if a
    # thread ends while tensors that it has created are freed (impl/decisions/threads.md).
    pool = ThreadPoolExecutor(max(_THREADS))
    barrier = threading.Barrier(max(_THREADS))
    wait([pool.submit(barrier.wait) for _ in range(max(_THREADS))])
    while time.monotonic() < end and not errors:
        faulthandler.dump_traceback_later(_TIMEOUT, exit=True)
        try:
            with calls.run_round():
                for done, failed in _run_round(calls, rng, pool):
                    succeeded += done
                    errors += failed
        except AssertionError as error:
            errors.append(str(error))
        measurements.append(_read_resources())
        faulthandler.cancel_dump_traceback_later()
        if len(measurements) % _PROGRESS_INTERVAL == 1:
            print(
                f"{len(measurements)} rounds, {succeeded.total()} calls, {measurements[-1]}",
                flush=True,
            )
    return succeeded, [*errors, *find_growth(measurements)]


def _run_round(
    calls: CheckedCalls, rng: random.Random, pool: Executor
) -> list[tuple[Counter[str], list[str]]]:
    """Run a round; return the calls that succeeded in each thread, and the errors.

    In the first half of the round all threads run the same call, to provoke data races.
    """
    count, common = rng.choice(_THREADS), rng.choice([*calls])
    barrier, start = threading.Barrier(count), time.monotonic()

    def work(seed: int) -> tuple[Counter[str], list[str]]:
        thread_rng, succeeded, errors = random.Random(seed), Counter[str](), list[str]()
        barrier.wait()
        while (passed := time.monotonic() - start) < _ROUND and not errors:
            name = common if passed < _ROUND / 2 else thread_rng.choice([*calls])
            try:
                calls[name](thread_rng)
            except BaseException:
                errors.append(f"{name} (seed {seed}): {traceback.format_exc()}")
            else:
                succeeded[name] += 1
        return succeeded, errors

    running = [pool.submit(work, rng.getrandbits(32)) for _ in range(count)]
    return [each.result() for each in running]


def _read_resources() -> Resources:
    # A finalizer in the first collection may create garbage for the second collection.
    gc.collect()
    gc.collect()
    return Resources(
        threading.active_count(),
        len(gc.get_objects()),
        sum(map(torch.accelerator.memory_allocated, range(SIMULATED_DEVICES))),
        _resident_mib(),
    )


def _resident_mib() -> float:
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * 4096 / 2**20
    except OSError:  # Not Linux.
        return 0.0


def find_growth(measurements: Sequence[Resources]) -> Iterator[str]:
    """Yield an error text for each resource that has grown by more than ``_MAX_GROWTH``."""
    measured = measurements[WARM_UP:]
    third = len(measured) // 3
    for name, ratio in _MAX_GROWTH.items() if third >= MIN_ROUNDS else ():
        first = max(getattr(each, name) for each in measured[:third])
        last = min(getattr(each, name) for each in measured[-third:])
        if last > first * ratio:
            yield f"growth: {name} were at most {first} in the first rounds, at least {last} later"


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # Without ending threads: PyTorch may crash (see _run_rounds).
