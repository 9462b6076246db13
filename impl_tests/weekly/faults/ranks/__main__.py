"""Lose ranks of impl.distributed in random ways at random places.

Each trial starts processes on the CPU with the back end gloo. One or two ranks exit, are killed or
stopped, raise an error or stay away. Every other rank must raise an error within the time limit,
and the error must name a lost rank. ``cases.py`` lists the ways and the places.
"""

import argparse
import gc
import importlib
import random
import re
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from impl_tests.helpers import forks
from impl_tests.weekly.faults.findings import Finding, report

from .cases import Case, draw_case
from .processes import Rank, run_case
from .rank import INJECTED

__all__ = ["create_jobs", "prepare"]

#: Seconds from the last fault to the errors of the other ranks. A collective may take 4 seconds.
#: The ranks look once a second whether a collective has failed, and wait 5 seconds for the other
#: ranks. 3 seconds are added for a busy machine.
_ERROR_LIMIT = 4.0 + 1.0 + 5.0 + 3.0
#: The verdicts that are not bad: no fault occurred; the error names lost ranks only; the rank that
#: raises, exits or returns late ends with an error; or, after a failed collective on a live rank,
#: the error says that all ranks respond.
_GOOD = ("not reached", "named", "own error", "all respond")
#: The exit statuses that are not a crash. `run_rank` ends with 0, or with 1 after an error. The
#: fault "os._exit" ends the process with 3.
_STATUSES = (0, 1, 3)
_NAMES = (
    re.compile(r"rank ([\d, ]+) of \d+ has ended"),
    re.compile(r"\bin rank (\d+)\b"),
    re.compile(r"usually rank (0), has ended"),
)


def main() -> int:
    """Run the cases and print a table. Return 1 if a verdict is bad."""
    parser = argparse.ArgumentParser(
        prog="python -m impl_tests.weekly.faults.ranks", description=__doc__
    )
    parser.add_argument("--seed", type=int, help="the seed of the first trial; the others follow")
    parser.add_argument("--count", type=int, default=30, help="trials to run (default: 30)")
    parser.add_argument("--ranks", type=int, default=3, help="default: 3")
    parser.add_argument("--processes", type=int, default=3, help="trials at a time (default: 3)")
    options = parser.parse_args()
    prepare()
    seed = random.randrange(10**9) if options.seed is None else options.seed
    print(f"seed {seed}, {options.ranks} ranks", flush=True)
    cases = [draw_case(each, options.ranks) for each in range(seed, seed + options.count)]
    return report(create_jobs(cases), _GOOD, processes=options.processes)


def prepare() -> None:
    """Prepare this process for fast forks: import modules, and call ``gc.freeze``."""
    importlib.import_module("torch._dynamo")  # DistributedDataParallel imports it.
    gc.freeze()


def create_jobs(cases: Iterable[Case]) -> Iterator[forks.Job[Case]]:
    """Yield a job for each case, which returns a finding for each rank."""
    return (forks.Job(case, partial(_run, case)) for case in cases)


def _run(case: Case, _: Path) -> list[Finding]:
    ranks = run_case(case)
    start = max((rank.fault_time for rank in ranks if rank.fault_time is not None), default=None)
    return [Finding(_judge(r, case, start), case.kind, _describe(r, start)) for r in ranks]


def _describe(rank: Rank, start: float | None) -> str:
    seconds = 0.0 if start is None or rank.end_time is None else rank.end_time - start
    text = f"rank {rank.number} after {seconds:.1f} s: {rank.error}: {rank.text}"
    return f"{text} (exit status {rank.exit_code})"


def _judge(rank: Rank, case: Case, start: float | None) -> str:
    """Return the verdict on the end of one rank; ``start`` is the time of the last fault."""
    is_lost = rank.number in dict(case.lost) and rank.fault_time is not None
    if start is None or not rank.is_ready:
        return "not reached"
    if rank.exit_code is None:
        return "hang"
    if is_lost and dict(case.lost)[rank.number] == "killed":
        return "own error"
    if rank.exit_code not in _STATUSES:
        return "crash"
    if rank.error == "AssertionError":
        return "wrong result"
    if is_lost:
        return "unnoticed" if rank.end_time is not None and not rank.error else "own error"
    return _judge_error(rank, case, start)


def _judge_error(rank: Rank, case: Case, start: float) -> str:
    """Return the verdict on the error of a rank that is not lost."""
    if not rank.error or rank.end_time is None:
        return "unnoticed"
    if rank.end_time - start > _ERROR_LIMIT:
        return "late"
    if rank.number == case.raising and rank.text == INJECTED:
        return "own error"
    names = _named_ranks(rank.text)
    if not names and "fails" in dict(case.lost).values() and "ranks respond" in rank.text:
        return "all respond"
    if not names:
        return "no name"
    return "named" if names <= case.culprits else "other rank"


def _named_ranks(text: str) -> set[int]:
    """Return the ranks that the text of an error reports as lost or as failed."""
    text = text.partition(" (seen from rank ")[0]
    lists = [match for pattern in _NAMES for match in pattern.findall(text)]
    return {int(rank) for ranks in lists for rank in ranks.split(",")}


if __name__ == "__main__":
    sys.exit(main())
