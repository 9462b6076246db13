"""Trials: calls with faults and without, each trial in its own process."""

import faulthandler
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from impl_tests import forks
from spec_tests.harness.environment.target import Target

from .calls import Call, draw_call
from .kinds import KINDS, Fault
from .state import (
    Resources,
    call_in_contexts,
    draw_contexts,
    find_changes,
    read_module,
    read_state,
)
from .verdicts import BAD, Finding, are_equal, describe

__all__ = ["TIME_IS_UP", "TIME_LIMIT", "TrialResult", "run_trials"]

#: How often each kind is drawn, in proportion to the others. Some kinds take seconds for a trial.
_WEIGHTS = {"interrupt": 2, "memory": 1, "thread": 2, "blocked": 1}
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
    """

    seed: int
    kind: str
    findings: list[Finding]
    log: str


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
        yield TrialResult(seed, kind, findings, result.log)


def _make_job(
    target: Target, kinds: list[str], seed: int, limit: float
) -> forks.Job[tuple[int, str]]:
    (kind,) = random.Random(seed).choices(kinds, [_WEIGHTS.get(kind, 1) for kind in kinds])

    def run(_: Path) -> Any:
        faulthandler.enable(2)
        findings = []
        faulthandler.dump_traceback_later(limit, exit=True, file=2)
        # The trial depends on its kind and seed only: `--kinds KIND --seed SEED` can repeat it.
        for finding in _run_trial(target, kind, random.Random(f"{kind} {seed}")):
            findings.append(finding)
            # `forks` ends a process that prints nothing for a long time.
            print(finding.verdict, flush=True)
            faulthandler.dump_traceback_later(limit, exit=True, file=2)
        faulthandler.cancel_dump_traceback_later()
        return findings

    return forks.Job((seed, kind), run)


def _run_trial(target: Target, kind: str, rng: random.Random) -> Iterator[Finding]:
    """Repeat one call with the faults of a kind. Yield the verdicts until the first bad one."""
    call = draw_call(target, rng, only_modules=kind == "blocked")
    names, is_warm = draw_contexts(rng), rng.random() < 0.5
    print(f"{call}, in {names}", flush=True)
    faults = KINDS[kind](call, rng)
    while (fault := call_in_contexts(names, lambda: next(faults, None))) is not None:
        run = partial(_inject, call, fault, kind, is_warm=is_warm)
        finding = call_in_contexts(names, run)
        yield finding
        if finding.verdict in BAD:
            return


def _inject(call: Call, fault: Fault, kind: str, *, is_warm: bool) -> Finding:
    """Make a call with a fault, then one without a fault. Return the verdict on both.

    Args:
        call: The call.
        fault: The fault.
        kind: The kind of the fault.
        is_warm: Whether to make a call without a fault first.
    """
    expected = call.compute_expected()
    call.drop_grads()
    if is_warm and (problem := _find_problem(call, expected)):
        return Finding("wrong result", kind, problem)
    state, members = read_state(), read_module(call.net)
    resources = Resources(len(call.ordinals) + fault.extra_threads)

    def find_all_changes() -> list[str]:
        now = [*find_changes(state, read_state()), *find_changes(members, read_module(call.net))]
        return now + resources.find_growth()

    finding = _call_with_fault(call, fault, kind, expected)
    call.drop_grads()
    if finding.verdict in BAD:
        return finding
    changes = find_all_changes()
    next_problem = _find_problem(call, expected)
    changes = changes or find_all_changes()
    if changes:
        return Finding("state left", kind, f"{finding.detail}; {'; '.join(changes)}")
    return Finding("wrong result", kind, next_problem) if next_problem else finding


def _call_with_fault(call: Call, fault: Fault, kind: str, expected: list[Tensor]) -> Finding:
    try:
        with fault:
            found = call.compute()
    except BaseException as error:
        verdict = "error" if fault.is_reported_by(error) else "other error"
        return Finding(verdict, kind, f"{fault.place}: {describe(error)}")
    if fault.has_occurred and not fault.may_succeed:
        return Finding("lost", kind, fault.place)
    if not are_equal(found, expected):
        return Finding("wrong result", kind, fault.place)
    return Finding("right" if fault.has_occurred else "not reached", kind)


def _find_problem(call: Call, expected: list[Tensor]) -> str | None:
    """Make a call without a fault. Return why its result is wrong; None if it is right."""
    try:
        is_right = are_equal(call.compute(), expected)
    except BaseException as error:
        return f"a call without a fault raised {describe(error)}"
    finally:
        call.drop_grads()
    return None if is_right else "a call without a fault returned another result"
