"""Trials, each in its own process."""

import faulthandler
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from impl_tests import forks
from spec_tests.harness.environment.target import Target

from .blocked import run_blocked
from .exceptions import run_exception
from .interrupts import run_interrupts
from .memory import run_out_of_memory
from .threads import run_without_threads
from .verdicts import Finding

__all__ = ["KINDS", "TIME_IS_UP", "TrialResult", "run_trials"]

#: Kind of a trial -> a function that injects faults and yields the verdicts.
KINDS: dict[str, Callable[[Target, random.Random], Iterator[Finding]]] = {
    "exception": run_exception,
    "interrupt": run_interrupts,
    "memory": run_out_of_memory,
    "thread": run_without_threads,
    "blocked": run_blocked,
}
#: How often each kind is drawn, in proportion to the others. Some kinds take seconds for a trial.
_WEIGHTS = {
    "exception": 10,
    "interrupt": 4,
    "memory": 2,
    "thread": 4,
    "blocked": 2,
}
#: Seconds without a verdict after which a process counts as hung.
TIME_LIMIT = 60
#: Exit status of a process whose time was up. `faulthandler` chooses it.
TIME_IS_UP = 1


@dataclass(frozen=True)
class TrialResult:
    """The result of one trial.

    Args:
        seed: The seed of the trial.
        kind: One of ``KINDS``.
        findings: The verdicts. If the process hung or crashed, there is only this verdict.
        log: The text that the process printed.
        seconds: The duration of the process in seconds.
    """

    seed: int
    kind: str
    findings: list[Finding]
    log: str
    seconds: float


def run_trials(
    target: Target, kinds: list[str], seeds: Iterable[int], *, processes: int, limit: float
) -> Iterator[TrialResult]:
    """Run a trial for each seed in a forked process; yield each result when the trial ends.

    Args:
        target: The prepared target.
        kinds: The kinds to draw from.
        seeds: The seeds.
        processes: The number of processes at a time.
        limit: Seconds without a verdict after which a process prints all stacks and ends.
    """
    jobs = (_make_job(target, kinds, seed, limit) for seed in seeds)
    for result in forks.run(jobs, processes=processes):
        seed, kind = result.job.subject
        if result.result is not None:
            findings = [Finding(*each) for each in result.result]
        else:
            verdict = "hang" if result.exit_code == TIME_IS_UP else "crash"
            findings = [Finding(verdict, kind, f"exit code {result.exit_code}\n{result.log}")]
        yield TrialResult(seed, kind, findings, result.log, result.seconds)


def _make_job(
    target: Target, kinds: list[str], seed: int, limit: float
) -> forks.Job[tuple[int, str]]:
    (kind,) = random.Random(seed).choices(kinds, [_WEIGHTS.get(kind, 1) for kind in kinds])

    def run(_: Path) -> Any:
        faulthandler.enable(2)
        findings = []
        faulthandler.dump_traceback_later(limit, exit=True, file=2)
        # The trial depends on its kind and seed only: `--kinds KIND --seed SEED` can repeat it.
        for finding in KINDS[kind](target, random.Random(f"{kind} {seed}")):
            findings.append(finding)
            # `forks` ends a process that prints nothing for a long time.
            print(finding.verdict, flush=True)
            faulthandler.dump_traceback_later(limit, exit=True, file=2)
        faulthandler.cancel_dump_traceback_later()
        return findings

    return forks.Job((seed, kind), run)
