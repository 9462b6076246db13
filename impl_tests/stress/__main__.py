"""Stress all parts of impl in many threads; fail at the first wrong result or growth."""

import argparse
import faulthandler
import os
import random
import sys
import time

import torch

from impl_tests.stress.rounds import Results, run_rounds
from impl_tests.stress.sharing import SharedModules
from spec_tests import simulator
from spec_tests.harness.environment import interpreter

#: Seconds between two lines of printed progress.
_PROGRESS_INTERVAL = 20


def main() -> int:
    """Run until the time is up; return 1 if a check failed."""
    options = _parser().parse_args()
    faulthandler.enable()
    torch.set_num_threads(1)  # The threads of the test already use all cores.
    if options.accelerator == "sim":
        simulator.enable(4)
    was_free_threaded = not interpreter.is_gil_enabled()
    seed = random.getrandbits(32) if options.seed is None else options.seed
    devices = [torch.device(options.accelerator, index) for index in options.device_ids]
    print(f"python {interpreter.python_version()}; torch {torch.__version__}; seed {seed}")
    start = printed = time.monotonic()
    results = Results()
    for results in run_rounds(SharedModules(devices), options.minutes * 60, options.threads, seed):
        if time.monotonic() - printed > _PROGRESS_INTERVAL:
            printed = time.monotonic()
            print(
                f"{printed - start:6.0f} s  {results.jobs.total()} jobs  {results.snapshots[-1]}"
            )
            sys.stdout.flush()
    if was_free_threaded and interpreter.is_gil_enabled():
        results.errors.append("the GIL was enabled during the run")
    _print_summary(results, time.monotonic() - start)
    return int(bool(results.errors))


def _print_summary(results: Results, seconds: float) -> None:
    for name, count in sorted(results.jobs.items()):
        print(f"{count:8}  {name}")
    print(f"{results.jobs.total()} jobs, {len(results.snapshots)} rounds, {seconds:.0f} s")
    if results.snapshots:
        print(f"first round: {results.snapshots[0]}\nlast round:  {results.snapshots[-1]}")
    print("\n".join(results.errors) or "no wrong result, no cached replicas left, no growth")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m impl_tests.stress", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--threads", type=_parse_range, default=range(2, 17), help="default: 2-16")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--accelerator", default="sim")
    parser.add_argument(
        "--device-ids",
        type=lambda text: list(map(int, text.split(","))),
        default=[0, 1, 2, 3],
        help="default: 0,1,2,3",
    )
    return parser


def _parse_range(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # Without ending threads: PyTorch may crash (see rounds.py).
