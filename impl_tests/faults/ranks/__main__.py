"""Lose ranks of impl.distributed in random ways at random places.

Each trial starts processes on the CPU with the back end gloo. One or two ranks exit, are killed or
stopped, raise an error or stay away. Every other rank must raise an error within the time limit,
and the error must name a lost rank. ``cases.py`` lists the ways and the places.
"""

import argparse
import gc
import importlib
import random
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from impl_tests import forks
from impl_tests.faults.trial import Finding, report

from .cases import Case, draw_case
from .processes import run_case
from .program import TimeLimits
from .verdicts import BAD_ENDS, ENDS, judge_case

#: Seconds that a collective may take. The ranks look once a second whether a collective has
#: failed, and wait 5 seconds for the other ranks. 3 seconds are added for a busy machine.
LIMITS = TimeLimits(collective=4.0, error=4.0 + 1.0 + 5.0 + 3.0, hang=23.0)


def prepare() -> None:
    """Prepare this process for fast forks: import modules, and call ``gc.freeze``."""
    importlib.import_module("torch._dynamo")  # DistributedDataParallel imports it.
    gc.freeze()


def run_cases(cases: Iterable[Case], processes: int) -> Iterator[tuple[Case, list[Finding], str]]:
    """Run each case, ``processes`` at a time; yield it with its findings and printed text."""
    jobs = (forks.Job(case, partial(_run, case)) for case in cases)
    for ended in forks.run(jobs, processes=processes):
        found = ended.result or [("hang", "", "the trial did not end")]
        yield ended.job.subject, [Finding(*each) for each in found], ended.log


def _run(case: Case, _: Path) -> Any:
    return judge_case(case, run_case(case, LIMITS), LIMITS)


def main() -> int:
    """Run the cases and print a table. Return 1 if a verdict is bad."""
    parser = argparse.ArgumentParser(prog="python -m impl_tests.faults.ranks", description=__doc__)
    parser.add_argument("--seed", type=int, help="the seed of the first trial; the others follow")
    parser.add_argument("--count", type=int, default=30, help="trials to run (default: 30)")
    parser.add_argument("--ranks", type=int, default=3, help="default: 3")
    parser.add_argument("--processes", type=int, default=3, help="trials at a time (default: 3)")
    options = parser.parse_args()
    prepare()
    seed = random.randrange(10**9) if options.seed is None else options.seed
    print(f"seed {seed}, {options.ranks} ranks, {LIMITS}", flush=True)
    cases = [draw_case(each, options.ranks) for each in range(seed, seed + options.count)]
    return report(run_cases(cases, options.processes), ENDS, BAD_ENDS)


if __name__ == "__main__":
    sys.exit(main())
