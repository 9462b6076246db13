"""Running the steps that are left, as long as there is time."""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from reports.publishing import benchmarks

from .ledger import Entry, Ledger
from .process import run
from .steps import Setup, Step

__all__ = ["is_complete", "ledger_of", "run_steps"]

#: Below this many seconds not even the start of a step is worth it.
_LEAST = 20.0


def ledger_of(setup: Setup) -> Ledger:
    """The ledger in the folder of the results."""
    return Ledger(setup.out / "steps.jsonl")


def is_complete(steps: Sequence[Step], setup: Setup) -> bool:
    """Whether all of ``steps`` are over."""
    ledger = ledger_of(setup)
    return all(ledger.is_over(step.name) for step in steps)


def run_steps(
    steps: Sequence[Step],
    setup: Setup,
    seconds: float,
    *,
    after: Callable[[Entry], None] = lambda entry: None,
    least: float = _LEAST,
) -> None:
    """Run what is left of ``steps``, in order.

    A step that cannot be resumed is begun only if its whole limit is left.

    Args:
        steps: What there is to do.
        setup: Where.
        seconds: When to stop, from now.
        after: Called with the entry of each step that was run.
        least: The time without which nothing is begun, in seconds.
    """
    deadline, ledger = time.monotonic() + seconds, ledger_of(setup)
    for step in steps:
        if ledger.is_over(step.name):
            continue
        left = deadline - time.monotonic()
        if step.absent is not None:
            entry = Entry(step.name, "not-run", tail=step.absent)
        elif left >= (least if step.verdicts else step.seconds):
            entry = _run(step, min(left, step.seconds), setup)
        else:
            continue
        ledger.add(entry)
        after(entry)


def _run(step: Step, seconds: float, setup: Setup) -> Entry:
    before = _size(step.verdicts)
    ended = run(step.command, seconds, step.environment, setup.scratch / f"{step.name}.log")
    tail = ended.tail
    if ended.code is not None:
        status = "ended"
        tail += _keep(step, setup)
    else:
        # Without a verdict since it began, another call would come no further.
        status = "cut" if _size(step.verdicts) > before else "over"
    return Entry(step.name, status, ended.code, round(ended.seconds, 1), tail)


def _size(file: Path | None) -> int:
    return file.stat().st_size if file is not None and file.exists() else 0


def _keep(step: Step, setup: Setup) -> str:
    """Add the figures of a benchmark, without its samples, to those of the others."""
    if step.benchmark is None:
        return ""
    try:
        figures = benchmarks.read([step.benchmark])
    except (OSError, ValueError, KeyError) as error:
        return f"\nno figures: {error!r}"
    kept = setup.out / "benchmark.json"
    others = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    kept.write_text(json.dumps({**others, step.name: figures}, indent=1), encoding="utf-8")
    return ""
