"""Stress test: calls to all parts of impl in many threads at once, with checks of the results.

``python -m impl_tests.long_checks.stress --minutes 10`` runs rounds of random calls. Between two
rounds no call runs: then impl must not keep replicas. The test is most effective on free-threaded
Python, where threads switch inside statements.
"""

import argparse
import faulthandler
import gc
import os
import random
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

import impl
from impl import _replica_cache
from impl._settings import pause_gc
from impl_tests.helpers.cases import CASES, Net, RepeatedCall, create_tensor
from spec_tests import simulator
from spec_tests.machine import process_state
from spec_tests.machine.devices import SIMULATED_DEVICES

CheckedCall = Callable[[random.Random], None]
#: The possible numbers of threads in a round.
_THREADS = range(2, 17)
#: Seconds that a round lasts. Most calls take a few milliseconds.
_ROUND = 1.0
#: Seconds after which a round counts as hung and the process exits.
_TIMEOUT = 60


def main() -> int:
    """Run until the time is up; return 1 if a check failed."""
    parser = argparse.ArgumentParser(
        prog="python -m impl_tests.long_checks.stress", description=main.__doc__
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
    errors = _run_rounds(time.monotonic() + options.minutes * 60, random.Random(seed))
    if was_free_threaded and process_state.is_gil_enabled():
        errors.append("the GIL was enabled during the run")
    print("\n".join(errors) or "no wrong result, no kept replicas left")
    return int(bool(errors))


def _run_rounds(end: float, rng: random.Random) -> list[str]:
    """Run rounds until the time ``end``, or until a check fails; return the texts of errors."""
    errors: list[str] = []
    calls = CheckedCalls()
    for call in calls.values():
        call(rng)  # The first call may import modules.
    # All rounds use the same threads. On free-threaded Python, PyTorch 2.12 may crash or hang if a
    # thread ends while tensors that it has created are freed (impl/decisions/threads.md).
    pool = ThreadPoolExecutor(max(_THREADS))
    barrier = threading.Barrier(max(_THREADS))
    wait([pool.submit(barrier.wait) for _ in range(max(_THREADS))])
    while time.monotonic() < end and not errors:
        faulthandler.dump_traceback_later(_TIMEOUT, exit=True)
        calls.kept.replications = 0
        with calls.kept.hold():
            errors += _run_round(calls, rng, pool)
        errors += _find_left(calls.kept)
        faulthandler.cancel_dump_traceback_later()
    return errors


def _run_round(calls: "CheckedCalls", rng: random.Random, pool: Executor) -> list[str]:
    """Run a round; return the texts of the errors.

    In the first half of the round all threads run the same call, to provoke data races.
    """
    count, common = rng.choice(_THREADS), rng.choice([*calls])
    barrier, start = threading.Barrier(count), time.monotonic()

    def work(seed: int) -> list[str]:
        thread_rng = random.Random(seed)
        barrier.wait()
        while (passed := time.monotonic() - start) < _ROUND:
            name = common if passed < _ROUND / 2 else thread_rng.choice([*calls])
            try:
                calls[name](thread_rng)
            except BaseException:
                return [f"{name} (seed {seed}): {traceback.format_exc()}"]
        return []

    running = [pool.submit(work, rng.getrandbits(32)) for _ in range(count)]
    return [error for each in running for error in each.result()]


def _find_left(kept: "_CountingWrapper") -> Iterator[str]:
    """Yield the text of each state of impl that must not be left after a round."""
    if kept.replications > 1:
        yield f"one hold() built replicas {kept.replications} times"
    if _replica_cache.ReplicaCache.find_active(kept) is not None:
        yield "a wrapper keeps replicas outside of hold()"
    if not gc.isenabled():
        yield "the garbage collector is off outside of pause_gc"


class _CountingWrapper(impl.DataParallel[nn.Module]):
    """A wrapper that counts the calls of ``replicate``."""

    replications = 0

    def replicate(self, module: nn.Module, device_ids: Any) -> Any:
        self.replications += 1
        return super().replicate(module, device_ids)


class CheckedCalls(dict[str, CheckedCall]):
    """Name in the errors -> call. All threads use the same wrappers.

    Most calls are those of ``impl_tests/helpers/cases.py``. The suite tests errors of
    parallel_apply in several threads.
    """

    def __init__(self) -> None:
        self._devices = [torch.device("sim", index) for index in range(SIMULATED_DEVICES)]
        self.kept = _CountingWrapper(Net().eval(), self._devices)
        self._frozen = impl.DataParallel(
            Net().requires_grad_(False), self._devices, cache_frozen_parameters=True
        )
        super().__init__(
            {
                "hold": self._check_hold,
                "map": self._check_map,
                "frozen parameters": self._check_frozen,
                "garbage collector": _check_pause_gc,
            }
        )
        for name, case in CASES.items():
            if case.is_repeated:
                call = RepeatedCall(name)
                self[name] = partial(_check_case, call, call.compute())

    def _draw_input(self, rng: random.Random) -> Tensor:
        shape = rng.randint(1, 9), 3
        return create_tensor(*shape, device=self._devices[0], start=rng.randint(0, 9))

    def _check_hold(self, rng: random.Random) -> None:
        """Check a call inside of hold(), in which all threads use the same replicas."""
        x = self._draw_input(rng)
        with torch.no_grad(), self.kept.hold():
            _check_equal(self.kept(x), self.kept.module(x))

    def _check_map(self, rng: random.Random) -> None:
        """Check a map inside of hold(). Half of the maps end before all outputs were taken."""
        batches = [self._draw_input(rng) for _ in range(rng.randint(1, 6))]
        count = rng.choice([len(batches), rng.randint(0, len(batches))])
        with torch.no_grad(), self.kept.hold():
            outputs = self.kept.map(batches, in_flight=rng.randint(1, 12))
            for x, output in zip(batches[:count], outputs, strict=False):
                _check_equal(output, self.kept.module(x))

    def _check_frozen(self, rng: random.Random) -> None:
        """Check a call with kept copies of parameters. A step of an optimizer drops copies."""
        if rng.random() < 0.3:
            alias = nn.Parameter(next(self._frozen.module.parameters()).data)
            alias.grad = torch.zeros_like(alias)
            torch.optim.SGD([alias], lr=0.1).step()
        x = self._draw_input(rng)
        _check_equal(self._frozen(x), self._frozen.module(x))


def _check_equal(found: Tensor, expected: Tensor) -> None:
    assert torch.equal(found.cpu(), expected.cpu()), (found.tolist(), expected.tolist())


def _check_case(call: RepeatedCall, expected: list[Tensor], _: random.Random) -> None:
    torch.testing.assert_close(call.compute(), expected)


def _check_pause_gc(_: random.Random) -> None:
    """Check that the garbage collector is off inside a block of pause_gc."""
    with pause_gc():
        assert not gc.isenabled()


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # Without ending threads: PyTorch may crash (see _run_rounds).
