"""Run the steps that are not done yet, until the time limit."""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench import benchmark_files

from .process import run
from .step_log import StepLog, StepResult
from .steps import Setup, Step

__all__ = ["is_complete", "open_log", "run_steps"]

#: Seconds that must be left to start a step that a later call can resume.
_MIN_SECONDS = 20.0


def open_log(setup: Setup) -> StepLog:
    """Return the log of the steps in ``setup.out``."""
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
    on_result: Callable[[StepResult], None] = lambda result: None,
    min_seconds: float = _MIN_SECONDS,
) -> None:
    """Run the steps that are not done yet, in order.

    A step that a later call cannot resume is started only if its whole time limit is left.

    Args:
        steps: All steps.
        setup: Folders and machine.
        seconds: The time limit of this call.
        on_result: Called after each step, with its result.
        min_seconds: Seconds that must be left to start a step that a later call can resume.
    """
    deadline, log = time.monotonic() + seconds, open_log(setup)
    for step in steps:
        if log.is_done(step.name):
            continue
        seconds_left = deadline - time.monotonic()
        if step.skip_reason is not None:
            result = StepResult(step.name, "not-run", tail=step.skip_reason)
        elif seconds_left >= (min_seconds if step.verdicts else step.seconds):
            result = _run_step(step, min(seconds_left, step.seconds), setup)
        else:
            continue
        log.add(result)
        on_result(result)


def _run_step(step: Step, seconds: float, setup: Setup) -> StepResult:
    size_before = _file_size(step.verdicts)
    completed = run(step.command, seconds, step.environment, setup.scratch / f"{step.name}.log")
    tail = completed.tail
    if completed.code is not None:
        status = "ended"
        tail += _save_figures(step, setup)
    else:
        # If the step wrote no verdict in this run of the command, another run would not make
        # progress either.
        has_progress = _file_size(step.verdicts) > size_before
        status = "interrupted" if has_progress else "timed-out"
    return StepResult(step.name, status, completed.code, round(completed.seconds, 1), tail)


def _file_size(file: Path | None) -> int:
    return file.stat().st_size if file is not None and file.exists() else 0


def _save_figures(step: Step, setup: Setup) -> str:
    """Add the step's benchmark figures to ``benchmark.json``; return an error's text, or ""."""
    if step.benchmark is None:
        return ""
    try:
        figures = benchmark_files.combine([step.benchmark])
    except ValueError as error:
        return f"\nno figures: {error}"
    file = setup.out / "benchmark.json"
    others = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    file.write_text(json.dumps({**others, step.name: figures}, indent=1), encoding="utf-8")
    return ""
