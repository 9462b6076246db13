"""Run the remaining steps until the time limit."""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from reports.publishing import benchmarks

from .process import run
from .step_log import StepLog, StepResult
from .steps import Setup, Step

__all__ = ["is_complete", "open_log", "run_steps"]

#: A step is started only if at least this many seconds are left.
_MIN_SECONDS = 20.0


def open_log(setup: Setup) -> StepLog:
    """Return the log of the folder of results."""
    return StepLog(setup.out / "steps.jsonl")


def is_complete(steps: Sequence[Step], setup: Setup) -> bool:
    """Return whether all of ``steps`` are done."""
    log = open_log(setup)
    return all(log.is_done(step.name) for step in steps)


def run_steps(
    steps: Sequence[Step],
    setup: Setup,
    seconds: float,
    *,
    after: Callable[[StepResult], None] = lambda result: None,
    least: float = _MIN_SECONDS,
) -> None:
    """Run the steps that are not done, in order.

    A step that cannot be resumed is started only if its whole time limit is left.

    Args:
        steps: All steps.
        setup: Folders and machine.
        seconds: The time limit of this call.
        after: Called with the result of each step.
        least: The seconds that must be left to start a step that can be resumed.
    """
    deadline, log = time.monotonic() + seconds, open_log(setup)
    for step in steps:
        if log.is_done(step.name):
            continue
        left = deadline - time.monotonic()
        if step.skip_reason is not None:
            result = StepResult(step.name, "not-run", tail=step.skip_reason)
        elif left >= (least if step.verdicts else step.seconds):
            result = _run(step, min(left, step.seconds), setup)
        else:
            continue
        log.add(result)
        after(result)


def _run(step: Step, seconds: float, setup: Setup) -> StepResult:
    before = _size(step.verdicts)
    completed = run(step.command, seconds, step.environment, setup.scratch / f"{step.name}.log")
    tail = completed.tail
    if completed.code is not None:
        status = "ended"
        tail += _save_figures(step, setup)
    else:
        # A step without a new verdict would not get further in another call.
        status = "interrupted" if _size(step.verdicts) > before else "timed-out"
    return StepResult(step.name, status, completed.code, round(completed.seconds, 1), tail)


def _size(file: Path | None) -> int:
    return file.stat().st_size if file is not None and file.exists() else 0


def _save_figures(step: Step, setup: Setup) -> str:
    """Add the figures of a benchmark to ``benchmark.json``; return the text of an error, or ""."""
    if step.benchmark is None:
        return ""
    try:
        figures = benchmarks.read([step.benchmark])
    except (OSError, ValueError, KeyError) as error:
        return f"\nno figures: {error!r}"
    file = setup.out / "benchmark.json"
    others = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    file.write_text(json.dumps({**others, step.name: figures}, indent=1), encoding="utf-8")
    return ""
