"""Lose ranks of impl.distributed in random ways at random places.

Each trial starts processes on the CPU with the back end gloo. One or two ranks exit, are killed or
stopped, raise an error or stay away. Every other rank must raise an error within the time limit,
and the error must name a lost rank. ``cases.py`` lists the ways and the places.
"""

import argparse
import gc
import importlib
import random
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from impl_tests import forks
from impl_tests.faults.verdicts import Finding, format_counts

from .cases import HOWS, STORES, WHERES, Case, draw_case, list_cases
from .processes import run_case
from .program import TimeLimits
from .verdicts import BAD_ENDS, ENDS, judge_case

__all__ = ["main", "make_limits", "prepare", "run_cases"]

#: Seconds that a collective may take, by default.
COLLECTIVE_LIMIT = 4.0
#: Seconds from a failed collective to the error: the ranks look once a second whether a collective
#: has failed, and wait 5 seconds for the other ranks. 3 seconds are added for a busy machine.
_CHECK_LIMIT = 1.0 + 5.0 + 3.0
#: The number of seconds after the limit for errors at which a rank counts as hung.
_HANG_LIMIT = 10.0


def make_limits(collective: float) -> TimeLimits:
    """Return the time limits for a process group with the time limit ``collective``."""
    error = collective + _CHECK_LIMIT
    return TimeLimits(collective, error, error + _HANG_LIMIT)


def prepare() -> None:
    """Prepare this process for fast forks: import modules, and call ``gc.freeze``."""
    importlib.import_module("torch._dynamo")  # DistributedDataParallel imports it.
    gc.freeze()


def run_cases(
    cases: Iterable[Case], limits: TimeLimits, processes: int
) -> Iterator[tuple[Case, list[Finding], str]]:
    """Run each case, ``processes`` at a time; yield its findings and printed text."""
    for result in forks.run((_make_job(case, limits) for case in cases), processes=processes):
        case = result.job.subject
        if result.result is None:
            yield case, [Finding("hang", case.how, "the trial did not end")], result.log
        else:
            yield case, [Finding(*each) for each in result.result], result.log


def _make_job(case: Case, limits: TimeLimits) -> forks.Job[Case]:
    def run(_: Path) -> Any:
        return judge_case(case, run_case(case, limits), limits)

    return forks.Job(case, run)


def main() -> int:
    """Run the cases and print a table. Return 1 if a verdict is bad."""
    options = _parser().parse_args()
    prepare()
    seed = random.randrange(10**9) if options.seed is None else options.seed
    limits, counts = make_limits(options.timeout), Counter[tuple[str, str]]()
    print(f"seed {seed}, {options.ranks} ranks, {limits}", flush=True)
    start, count, missed = time.monotonic(), 0, 0
    with suppress(KeyboardInterrupt):  # The table then counts the trials until the interrupt.
        for case, findings, log in run_cases(_cases(options, seed), limits, options.processes):
            count += 1
            missed += all(finding.verdict == "not reached" for finding in findings)
            counts.update((finding.kind, finding.verdict) for finding in findings)
            bad = [finding for finding in findings if finding.verdict in BAD_ENDS]
            for text in _describe(case, bad or (findings if options.verbose else [])):
                print(text, flush=True)
            if options.logs and bad:
                print(log, flush=True)
    print(format_counts(counts, ENDS, BAD_ENDS))
    seconds = time.monotonic() - start
    bad_ends = sum(n for (_, verdict), n in counts.items() if verdict in BAD_ENDS)
    print(f"{count} trials, {missed} without a fault, {bad_ends} bad ranks, {seconds:.0f} s")
    return int(bad_ends > 0)


def _describe(case: Case, findings: list[Finding]) -> Iterator[str]:
    if findings:
        yield f"{case}\n  repeat: {case.options()}"
    for finding in findings:
        yield f"  {finding.verdict}: {finding.detail}"


def _cases(options: argparse.Namespace, seed: int) -> Iterator[Case]:
    if options.all:
        return list_cases(seed, options.ranks)
    lost = options.lost and tuple(_parse_lost(each) for each in options.lost.split(","))
    return (
        draw_case(
            each,
            options.ranks,
            where=options.where,
            lost=lost,
            raising=options.raising,
            store=options.store,
        )
        for each in range(seed, seed + options.count)
    )


def _parse_lost(text: str) -> tuple[int, str]:
    rank, _, how = text.partition(":")
    if how not in HOWS:
        raise SystemExit(f"--lost {text}: the way is one of {', '.join(HOWS)}")
    return int(rank), how


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m impl_tests.faults.ranks")
    parser.add_argument("--seed", type=int, help="the seed of the first trial; the others follow")
    parser.add_argument("--count", type=int, default=30, help="trials to run (default: 30)")
    parser.add_argument("--ranks", type=int, default=3, help="default: 3")
    parser.add_argument("--all", action="store_true", help="run each combination once")
    parser.add_argument("--where", choices=WHERES, help="the place, instead of a drawn one")
    parser.add_argument("--lost", metavar="RANK:WAY,...", help="instead of drawn ranks and ways")
    parser.add_argument("--raising", type=int, help="a rank that raises an error; -1 for none")
    parser.add_argument("--store", choices=STORES, help="the store, instead of a drawn one")
    parser.add_argument(
        "--timeout", type=float, default=COLLECTIVE_LIMIT, help="of collectives (s)"
    )
    parser.add_argument("--processes", type=int, default=3, help="trials at a time (default: 3)")
    parser.add_argument("--verbose", action="store_true", help="print all ends of ranks")
    parser.add_argument("--logs", action="store_true", help="print the output of bad trials")
    return parser
