"""Trials: repeated calls of one function with one kind of fault, each trial in its own process."""

import faulthandler
import random
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from impl_tests import forks
from spec_tests.harness.compare import surroundings

from .calls import Call, Result, are_equal, describe
from .cases import CASES
from .kinds import KINDS, Fault
from .state import Resources, call_in_context, draw_context, read_state

__all__ = ["BAD", "VERDICTS", "Finding", "Trial", "draw_trials", "report", "run_trials"]

#: Verdict -> its meaning. A verdict in ``BAD`` makes the run fail.
VERDICTS = {
    "not reached": "the call ended before the fault, or did not need the refused resource",
    "right": "the call returned the right result without the refused resource",
    "error": "the call raised the error that reports this fault",
    "other error": "the call raised another error, or an error that does not report the fault",
    "lost": "the fault occurred, and the call returned as if it had not",
    "wrong result": "this call or the next one returned a wrong result, or the next one failed",
    "state left": "after the call a setting, a module or the memory differs, or a thread runs",
    "hang": "the call, or the next one, did not end in time",
    "crash": "the process died",
}
#: The verdicts that make the run fail: all from "other error" on.
BAD = tuple(VERDICTS)[3:]
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
    """Yield a trial for each seed."""
    for seed in seeds:
        rng = random.Random(seed)
        (kind,) = rng.choices(kinds, [_WEIGHTS[kind] for kind in kinds])
        yield Trial(kind, rng.choice([name for name in cases if _has_fault(name, kind)]), seed)


def _has_fault(case: str, kind: str) -> bool:
    """Return whether a function can have a fault of a kind: only some start threads."""
    return CASES[case].has_faults and (CASES[case].runs_net or kind not in ("thread", "blocked"))


def run_trials(
    trials: Iterable[Trial], *, processes: int, limit: float = TIME_LIMIT
) -> Iterator[tuple[Trial, list[Finding], str]]:
    """Run trials in forked processes. Yield each with its findings and no further text.

    Args:
        trials: The trials.
        processes: The number of processes at a time.
        limit: Seconds without a verdict after which a process counts as hung.
    """
    jobs = (forks.Job(trial, partial(_run, trial, limit)) for trial in trials)
    for ended in forks.run(jobs, processes=processes):
        trial = ended.job.subject
        if ended.result is not None:
            findings = [Finding(*each) for each in ended.result]
        else:
            verdict = "hang" if ended.exit_code == _TIME_IS_UP else "crash"
            detail = f"exit code {ended.exit_code}\n{ended.log}"
            findings = [Finding(verdict, trial.kind, detail)]
        yield trial, findings, ""


def _run(trial: Trial, limit: float, _: Path) -> list[Finding]:
    rng = random.Random(str(trial))
    context = draw_context(rng)
    # Another process computes the expected result: here no call precedes the first fault.
    job = forks.Job("the call", partial(_compute_expected, trial.case, context))
    (computed,) = forks.run([job], processes=1)
    if computed.result is None:
        message = f"the call without a fault ended with status {computed.exit_code}"
        raise RuntimeError(f"{message}:\n{computed.log}")
    faulthandler.enable(2)
    faulthandler.dump_traceback_later(limit, exit=True, file=2)
    print(f"{trial.case}, in {context}", flush=True)
    call = Call(trial.case)
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
        if finding.verdict in BAD:
            break
    faulthandler.cancel_dump_traceback_later()
    return findings


def _compute_expected(case: str, context: str, _: Path) -> Result:
    call = Call(case)
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
    modules = call.modules(arguments)
    state = read_state(modules)
    resources = Resources(2 + fault.extra_threads)

    def find_all_changes() -> list[str]:
        return [*surroundings.changes(state, read_state(modules)), *resources.find_growth()]

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
    try:
        with fault:
            found = call.compute(arguments)
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


def report(
    results: Iterable[tuple[object, Sequence[Finding], str]],
    meanings: Mapping[str, str],
    bad: Sequence[str],
    *,
    exitfirst: bool = False,
) -> int:
    """Print the bad findings of trials, and a table of all verdicts. Return 1 if one is bad.

    Args:
        results: The options that repeat a trial, its findings, and a text to print after bad ones.
        meanings: Verdict -> its meaning.
        bad: The bad verdicts.
        exitfirst: Whether to end after the first trial with a bad verdict.
    """
    start, counts = time.monotonic(), Counter[tuple[str, str]]()
    with suppress(KeyboardInterrupt):  # The table then counts the trials until the interrupt.
        for trial, findings, text in results:
            counts.update((finding.kind, finding.verdict) for finding in findings)
            wrong = [finding for finding in findings if finding.verdict in bad]
            for finding in wrong:
                print(f"{finding.verdict} ({trial})\n  {finding.detail}", flush=True)
            if wrong:
                print(text, end="", flush=True)
                if exitfirst:
                    break
    width = max((len(kind) for kind, _ in counts), default=0)
    for (kind, verdict), count in sorted(counts.items()):
        mark = " (bad)" * (verdict in bad)
        print(f"{count:7}  {kind:{width}}  {verdict}{mark}: {meanings[verdict]}")
    bad_count = sum(count for (_, verdict), count in counts.items() if verdict in bad)
    print(f"{counts.total()} verdicts, {bad_count} bad, {time.monotonic() - start:.0f} s")
    return int(bad_count > 0)
