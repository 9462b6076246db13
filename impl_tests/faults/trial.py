"""Trials: repeated calls of one function with one kind of fault, each trial in its own process."""

import faulthandler
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from impl_tests import forks
from spec_tests.harness.environment.target import Target

from .calls import Call, Result, are_equal, describe
from .cases import CASES
from .kinds import KINDS, Fault
from .state import Resources, call_in_context, draw_context, find_changes, read_state

__all__ = ["BAD", "VERDICTS", "Finding", "Trial", "draw_trials", "format_counts", "run_trials"]

#: Verdict -> its meaning. A verdict in ``BAD`` makes the run fail.
VERDICTS = {
    "not reached": "the call ended before the fault, or did not need the refused resource",
    "right": "the call returned the right result without the refused resource",
    "accepted": "the call accepted the wrong argument",
    "error": "the call raised the error that reports this fault",
    "other error": "the call raised another error, or an error that does not report the fault",
    "lost": "the fault occurred, and the call returned as if it had not",
    "wrong result": "this call or the next one returned a wrong result, or the next one failed",
    "state left": "after the call a setting, a module or the memory differs, or a thread runs",
    "hang": "the call, or the next one, did not end in time",
    "crash": "the process died",
}
#: The verdicts that make the run fail: all from "other error" on.
BAD = tuple(VERDICTS)[4:]
#: How often each kind is drawn, in proportion to the others. Some kinds take seconds for a trial.
_WEIGHTS = {"interrupt": 2, "memory": 1, "thread": 2, "blocked": 1}
#: Seconds without a verdict after which a process prints all stacks and ends.
TIME_LIMIT = 60
#: Exit status of a process whose time was up. `faulthandler` chooses it.
_TIME_IS_UP = 1


class Finding(NamedTuple):
    """The verdict on one fault, the fault's kind, and what was observed."""

    verdict: str
    kind: str
    detail: str = ""


@dataclass(frozen=True)
class Trial:
    """A function, a kind of fault, and the seed of the random numbers of the trial.

    Args:
        kind: A name of ``KINDS``.
        case: A name of ``CASES``.
        seed: The seed.
    """

    kind: str
    case: str
    seed: int

    def __str__(self) -> str:
        """Return the options that repeat the trial."""
        return f"--kinds {self.kind} --cases '{self.case}' --seed {self.seed} --count 1"


def draw_trials(
    kinds: Sequence[str], cases: Sequence[str], seeds: Iterable[int]
) -> Iterator[Trial]:
    """Yield a trial for each seed, and one with wrong arguments for each case."""
    if "argument" in kinds:
        yield from (Trial("argument", case, 0) for case in cases)
    faults = [kind for kind in kinds if kind in _WEIGHTS]
    for seed in seeds if faults else ():
        rng = random.Random(seed)
        (kind,) = rng.choices(faults, [_WEIGHTS[kind] for kind in faults])
        yield Trial(kind, rng.choice([name for name in cases if _has_fault(name, kind)]), seed)


def _has_fault(case: str, kind: str) -> bool:
    """Return whether a function can have a fault of a kind: only some start threads."""
    return CASES[case].has_faults and (CASES[case].runs_net or kind not in ("thread", "blocked"))


def run_trials(
    target: Target, trials: Iterable[Trial], *, processes: int, limit: float = TIME_LIMIT
) -> Iterator[tuple[Trial, list[Finding], str]]:
    """Run trials in forked processes. Yield each with its findings and the printed text.

    Args:
        target: The prepared target.
        trials: The trials.
        processes: The number of processes at a time.
        limit: Seconds without a verdict after which a process counts as hung.
    """
    jobs = (forks.Job(trial, partial(_run, target, trial, limit)) for trial in trials)
    for ended in forks.run(jobs, processes=processes):
        trial = ended.job.subject
        if ended.result is not None:
            findings = [Finding(*each) for each in ended.result]
        else:
            verdict = "hang" if ended.exit_code == _TIME_IS_UP else "crash"
            detail = f"exit code {ended.exit_code}\n{ended.log}"
            findings = [Finding(verdict, trial.kind, detail)]
        yield trial, findings, ended.log


def _run(target: Target, trial: Trial, limit: float, _: Path) -> list[Finding]:
    rng = random.Random(str(trial))
    context = draw_context(rng) if trial.kind != "argument" else ""
    # Another process computes the expected result: here no call precedes the first fault.
    job = forks.Job("the call", partial(_compute_expected, target, trial.case, context))
    (computed,) = forks.run([job], processes=1)
    if computed.result is None:
        message = f"the call without a fault ended with status {computed.exit_code}"
        raise RuntimeError(f"{message}:\n{computed.log}")
    faulthandler.enable(2)
    faulthandler.dump_traceback_later(limit, exit=True, file=2)
    print(f"{trial.case}, in {context}", flush=True)
    call = Call(trial.case, target)
    faults = KINDS[trial.kind](call, rng)
    is_warm = rng.random() < 0.5
    findings = []
    while (fault := call_in_context(context, lambda: next(faults, None))) is not None:
        run = partial(_inject, call, fault, trial.kind, computed.result, is_warm=is_warm)
        finding = call_in_context(context, run)
        findings.append(finding)
        # `forks` ends a process that prints nothing for a long time.
        print(f"{fault.place}: {finding.verdict}", flush=True)
        faulthandler.dump_traceback_later(limit, exit=True, file=2)
        if finding.verdict in BAD and trial.kind != "argument":
            break
    faulthandler.cancel_dump_traceback_later()
    return findings


def _compute_expected(target: Target, case: str, context: str, _: Path) -> Result:
    call = Call(case, target)
    return call_in_context(context, lambda: call.compute(call.create_arguments()))


def _inject(call: Call, fault: Fault, kind: str, expected: Result, *, is_warm: bool) -> Finding:
    """Make a call with a fault, then one without a fault. Return the verdict on both.

    Args:
        call: The call.
        fault: The fault.
        kind: The kind of the fault.
        expected: The result of a call without a fault.
        is_warm: Whether to make a call without a fault first.
    """
    if is_warm and (problem := _find_problem(call, expected)):
        return Finding("wrong result", kind, problem)
    arguments = call.create_arguments()
    # The constructor of impl.distributed.DataParallel changes its module.
    modules = call.modules(arguments) if call.case.has_faults else []
    state = read_state(modules)
    resources = Resources(2 + fault.extra_threads)

    def find_all_changes() -> list[str]:
        # A wrong argument may keep the tensors that it gets.
        growth = [] if fault.arguments else resources.find_growth()
        return [*find_changes(state, read_state(modules)), *growth]

    finding = _call_with_fault(call, fault, kind, arguments, expected)
    if finding.verdict in BAD:
        return finding
    changes = find_all_changes()
    next_problem = _find_problem(call, expected)
    changes = changes or find_all_changes()
    if changes:
        return Finding("state left", kind, f"{finding.detail}; {'; '.join(changes)}")
    return Finding("wrong result", kind, next_problem) if next_problem else finding


def _call_with_fault(
    call: Call, fault: Fault, kind: str, arguments: dict[str, Any], expected: Result
) -> Finding:
    wrong = fault.arguments
    try:
        with fault:
            # The result for a wrong argument may be any object.
            found = call.run(arguments | wrong) if wrong else call.compute(arguments)
    except BaseException as error:
        verdict = "error" if fault.is_reported_by(error) else "other error"
        return Finding(verdict, kind, f"{fault.place}: {describe(error)}")
    verdict = fault.returned if fault.has_occurred else "not reached"
    if verdict in ("right", "not reached") and not are_equal(found, expected):
        verdict = "wrong result"
    return Finding(verdict, kind, fault.place)


def _find_problem(call: Call, expected: Result) -> str | None:
    """Make a call without a fault. Return why its result is wrong; None if it is right."""
    try:
        is_right = are_equal(call.compute(call.create_arguments()), expected)
    except BaseException as error:
        return f"a call without a fault raised {describe(error)}"
    return None if is_right else "a call without a fault returned another result"


def format_counts(
    findings: Counter[tuple[str, str]], meanings: dict[str, str], bad: Sequence[str]
) -> str:
    """Return a line for each kind of fault and verdict, with its number and meaning.

    Args:
        findings: The numbers of pairs of a kind and a verdict.
        meanings: Verdict -> its meaning.
        bad: The bad verdicts.
    """
    width = max((len(kind) for kind, _ in findings), default=0)
    return "\n".join(
        f"{count:7}  {kind:{width}}  {verdict}{' (bad)' * (verdict in bad)}: {meanings[verdict]}"
        for (kind, verdict), count in sorted(findings.items())
    )
