"""Inject faults into calls of the public functions."""

import argparse
import gc
import importlib
import itertools
import random
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import torch

from impl_tests.helpers import forks
from spec_tests import simulator
from spec_tests.machine.devices import SIMULATED_DEVICES

from .call_trials import PAIRS, CallTrial, run_calls
from .faults import KINDS
from .findings import Finding, report

__all__ = ["create_jobs", "prepare"]


def main() -> int:
    """Run random trials. Return 1 if a verdict is bad."""
    parser = argparse.ArgumentParser(
        prog="python -m impl_tests.weekly.fault_injection", description=main.__doc__
    )
    parser.add_argument("--count", type=int, default=300, help="trials to run (default: 300)")
    parser.add_argument("--seed", type=int, help="the seed of the first trial; the others follow")
    parser.add_argument(
        "--only",
        default="",
        metavar="TEXT",
        help=f"run only trials with TEXT in the name; kinds: {', '.join(KINDS)}",
    )
    parser.add_argument("--processes", type=int, default=2, help="at a time (default: 2)")
    parser.add_argument("-x", "--exitfirst", action="store_true", help="end at a bad verdict")
    options = parser.parse_args()
    seed = random.randrange(10**9) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    prepare()
    trials = (trial for trial in map(_draw, itertools.count(seed)) if options.only in str(trial))
    jobs = create_jobs(itertools.islice(trials, options.count))
    return report(jobs, processes=options.processes, exitfirst=options.exitfirst)


def prepare() -> None:
    """Register the devices. Use none of them, so that this process can fork."""
    torch.set_num_threads(1)
    simulator.enable(SIMULATED_DEVICES)
    # The first backward needs these modules.
    for name in ("torch.fx.experimental.symbolic_shapes", "torch._dynamo"):
        importlib.import_module(name)
    # A garbage collection in a forked process then skips all objects that exist now.
    gc.collect()
    gc.freeze()


def _draw(seed: int) -> CallTrial:
    """Return the trial of a seed."""
    rng = random.Random(seed)
    kind, name = rng.choice(PAIRS)
    return CallTrial(seed, kind, name, has_settings=rng.random() < 0.5)


def create_jobs(trials: Iterable[CallTrial]) -> Iterator[forks.Job]:
    """Yield a job for each trial, which returns its findings."""
    return (forks.Job(trial, partial(_run, trial)) for trial in trials)


def _run(trial: CallTrial, _: Path) -> list[Finding]:
    return run_calls(trial)


if __name__ == "__main__":
    sys.exit(main())
