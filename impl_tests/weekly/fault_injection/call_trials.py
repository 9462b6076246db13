"""Trials with faults in calls of the public functions."""

import random
import statistics
import time
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from impl_tests.helpers import forks
from impl_tests.helpers.cases import CASES, RepeatedCall, Result, are_equal
from spec_tests.checks.leaks import disable_gc

from .faults import KINDS, Fault
from .findings import GOOD, Finding
from .state_before import StateBefore, set_values

__all__ = ["PAIRS", "CallTrial", "run_calls"]

#: The number of calls whose duration is measured.
_TIMED_CALLS = 5
#: The largest length, in characters, of an error's text in a finding.
_TEXT_LENGTH = 300
#: Each kind of faults with each function that can have it: only some functions start threads.
PAIRS = [
    (kind, name)
    for kind in KINDS
    for name, case in CASES.items()
    if case.has_faults and (case.runs_net or kind not in ("thread", "blocked"))
]


@dataclass(frozen=True)
class CallTrial:
    """A kind of fault, a function, and the seed of the random numbers of the trial.

    Args:
        seed: The seed.
        kind: A name of ``KINDS``.
        case: A name of ``CASES``.
        has_settings: Whether the calling thread has other settings than a new thread.
    """

    seed: int
    kind: str
    case: str
    has_settings: bool

    def __str__(self) -> str:
        settings = ", with settings" * self.has_settings
        return f"--seed {self.seed} --count 1: {self.kind} in {self.case}{settings}"


def run_calls(trial: CallTrial) -> list[Finding]:
    """Inject the faults of a trial until one has a bad verdict; return the findings."""
    # Another process computes the expected result: here no call precedes the first fault.
    (computed,) = forks.run([forks.Job("the call", partial(_compute, trial))], processes=1)
    if computed.result is None:
        raise RuntimeError(f"the call without a fault ended its process:\n{computed.log}")
    expected, seconds = computed.result
    findings = []
    call = RepeatedCall(trial.case)
    with ExitStack() as stack:
        _enter_settings(trial, stack)
        for fault in KINDS[trial.kind](random.Random(trial.seed), seconds):
            findings.append(_inject(call, fault, trial.kind, expected))
            # `forks` ends a process that prints nothing for a long time.
            print(f"{fault.place}: {findings[-1].verdict}", flush=True)
            if findings[-1].verdict not in GOOD:
                stack.pop_all()  # The call may have changed the settings.
                break
    return findings


def _enter_settings(trial: CallTrial, stack: ExitStack) -> None:
    set_values()
    if trial.has_settings:
        stack.enter_context(torch.inference_mode())
        stack.enter_context(torch.autocast("sim", dtype=torch.float16))
        stack.enter_context(torch.accelerator.device_index(1))
        stack.enter_context(torch.Stream(device="sim:2"))
        stack.enter_context(disable_gc())


def _compute(trial: CallTrial, folder: Path) -> tuple[Result, float]:
    """Make calls without faults. Return the result, and the median of the seconds of a call."""
    call, durations = RepeatedCall(trial.case), []
    with ExitStack() as stack:
        _enter_settings(trial, stack)
        for _ in range(_TIMED_CALLS):
            arguments, start = call.create_arguments(), time.perf_counter()
            result = call.compute(arguments)
            durations.append(time.perf_counter() - start)
    return result, statistics.median(durations)


def _inject(call: RepeatedCall, fault: Fault, kind: str, expected: Result) -> Finding:
    """Make a call with a fault, then one without a fault. Return the verdict on both."""
    arguments = call.create_arguments()
    state = StateBefore(call.modules(arguments), kept_threads=2 + fault.extra_threads)
    verdict, detail = _call_with_fault(call, fault, arguments, expected)
    if verdict not in GOOD:
        return Finding(verdict, kind, detail)
    changes = state.find_changes()
    problem = _find_problem(call, expected)
    if changes := changes or state.find_changes():
        return Finding("state left", kind, f"{detail}; {'; '.join(changes)}")
    return Finding("wrong result", kind, problem) if problem else Finding(verdict, kind, detail)


def _call_with_fault(
    call: RepeatedCall, fault: Fault, arguments: dict[str, Any], expected: Result
) -> tuple[str, str]:
    """Make a call with a fault. Return the verdict and a text."""
    try:
        with fault:
            found = call.compute(arguments)
    except BaseException as error:
        verdict = "reported" if fault.is_reported_by(error) else "not reported"
        return verdict, f"{fault.place}: {_describe(error)}"
    verdict = fault.returned if fault.has_occurred else "not reached"
    if verdict in GOOD and not are_equal(found, expected):
        verdict = "wrong result"
    return verdict, fault.place


def _find_problem(call: RepeatedCall, expected: Result) -> str:
    """Make a call without a fault. Return why its result is wrong, or an empty text."""
    try:
        is_right = are_equal(call.compute(call.create_arguments()), expected)
    except BaseException as error:
        return f"a call without a fault raised {_describe(error)}"
    return "" if is_right else "a call without a fault returned another result"


def _describe(error: BaseException) -> str:
    """Return the class of an exception and the end of its text."""
    return f"{type(error).__name__}: {str(error)[-_TEXT_LENGTH:]}"
