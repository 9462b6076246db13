"""Try all parts of impl in many threads; fails at the first wrong result, and at any growth."""

import argparse
import faulthandler
import os
import random
import sys
import tempfile
import time
from pathlib import Path

import torch

from impl_tests.stress import races
from impl_tests.stress.rounds import Found, run_rounds
from impl_tests.stress.sharing import Shared
from spec_tests import simulator
from spec_tests.harness.environment import interpreter

#: Seconds between two lines.
_EVERY = 20


def main() -> int:
    """Run until the time is up; 1 if anything went wrong."""
    options = _parser().parse_args()
    faulthandler.enable()
    torch.set_num_threads(1)  # Many threads share the cores already.
    if options.accelerator == "sim":
        simulator.enable(4)
    with tempfile.TemporaryDirectory() as home:
        name = options.race and races.write(options.race, Path(home))
        return _run(name or "impl", options)


def _run(package: str, options: argparse.Namespace) -> int:
    was_off = not interpreter.is_gil_enabled()
    seed = random.getrandbits(32) if options.seed is None else options.seed
    devices = [torch.device(options.accelerator, index) for index in options.device_ids]
    print(
        f"{package}; python {interpreter.python_version()}; torch {torch.__version__}; seed {seed}"
    )
    begin = told = time.monotonic()
    found = Found()
    for found in run_rounds(Shared(package, devices), options.minutes * 60, options.threads, seed):
        if time.monotonic() - told > _EVERY:
            told = time.monotonic()
            print(f"{told - begin:6.0f} s  {found.jobs.total()} jobs  {found.looks[-1]}")
            sys.stdout.flush()
    if was_off and interpreter.is_gil_enabled():
        found.wrong.append("the lock is on")
    _tell(found, time.monotonic() - begin)
    return int(bool(found.wrong))


def _tell(found: Found, seconds: float) -> None:
    for name, count in sorted(found.jobs.items()):
        print(f"{count:8}  {name}")
    print(f"{found.jobs.total()} jobs, {len(found.looks)} rounds, {seconds:.0f} s")
    if found.looks:
        print(f"at first {found.looks[0]}\nat last  {found.looks[-1]}")
    print("\n".join(found.wrong) or "no wrong result, nothing left over, no growth")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m impl_tests.stress", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--threads", type=_range, default=range(2, 17), help="default: 2-16")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--accelerator", default="sim")
    parser.add_argument(
        "--device-ids",
        type=lambda text: [int(each) for each in text.split(",")],
        default=[0, 1, 2, 3],
        help="default: 0,1,2,3",
    )
    parser.add_argument(
        "--race", choices=races.load(), help="try impl with this data race put in on purpose"
    )
    return parser


def _range(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # Without the end of the threads, for the reason that rounds.py gives.
