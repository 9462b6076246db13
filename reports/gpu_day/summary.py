"""Summarize the results in a folder as one Markdown page."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from reports.publishing import benchmarks
from spec_tests.harness.conformance import verdicts

from .requirements import check_requirements
from .step_log import StepResult
from .steps import Step

__all__ = ["format_summary"]

#: Names of the files of verdicts, without the suffix.
_FILES = ("verdicts-2", "verdicts-3", "reference", "checks")
#: Number of failures that the page lists for each file of verdicts.
_MAX_LISTED = 40


def format_summary(steps: Sequence[Step], results: Sequence[StepResult], out: Path) -> str:
    """Return the page: requirements, steps, verdicts, differences and ratios.

    Args:
        steps: All steps.
        results: The results of the steps so far, oldest first.
        out: The folder of the results.
    """
    figures = _read_json(out / "benchmark.json", {})
    lines = ["# Results on a GPU", "", *_format_requirements(figures)]
    lines += [*_format_steps(steps, results), *_format_verdicts(out), *_format_differences(out)]
    for name, data in figures.items():
        lines += [f"## {name}", "", benchmarks.format_summary(data, {}), ""]
    return "\n".join(lines)


def _format_requirements(figures: dict[str, Any]) -> Iterator[str]:
    yield from ("| requirement | minimum | measured | |", "|---|---|---|---|")
    for each in check_requirements(figures):
        measured = "-" if each.measured is None else f"{each.measured:.2f}"
        yield f"| {each.name} | {each.minimum} | {measured} | {each.verdict} |"
    yield ""


def _format_steps(steps: Sequence[Step], results: Sequence[StepResult]) -> Iterator[str]:
    yield from (
        "## Steps",
        "",
        "| step | purpose | status | exit | seconds |",
        "|---|---|---|---|---|",
    )
    for step in steps:
        step_results = [each for each in results if each.step == step.name]
        last = (
            step_results[-1] if step_results else StepResult(step.name, "left for the next call")
        )
        status = f"not-run: {last.tail}" if last.status == "not-run" else last.status
        code = "-" if last.code is None else str(last.code)
        seconds = sum(each.seconds for each in step_results)
        yield f"| {step.name} | {step.purpose} | {status} | {code} | {seconds:.0f} |"
    yield ""
    yield from (each.tail for each in results if each.step == "machine")


def _format_verdicts(out: Path) -> Iterator[str]:
    for name in _FILES:
        tests = verdicts.read(out / f"{name}.jsonl")
        if tests:
            counts = Counter(test["verdict"] for test in tests)
            numbers = ", ".join(f"{counts[each]} {each}" for each in verdicts.VERDICTS)
            yield from (f"## {name}: {numbers}", "")
            yield from _format_failures(tests)


def _format_failures(tests: Sequence[dict[str, str]]) -> Iterator[str]:
    """Yield each failed test once, with the first line of its reason."""
    failed = {test["test"]: test for test in tests if test["verdict"] == "fail"}
    for test in list(failed.values())[:_MAX_LISTED]:
        first_line = test.get("reason", "").partition("\n")[0]
        yield f"* `{test['test']}`: {first_line}"
    if len(failed) > _MAX_LISTED:
        yield f"* and {len(failed) - _MAX_LISTED} more"
    yield ""


def _format_differences(out: Path) -> Iterator[str]:
    comparison = _read_json(out / "differences.json", None)
    if comparison is not None:
        kinds = Counter(each["kind"] for each in comparison["differences"])
        yield from ("## differences", "")
        yield f"{comparison['calls']} calls on both, {comparison['differing']} differ."
        yield from (f"* {kind}: {count}" for kind, count in kinds.items())
        yield ""


def _read_json(file: Path, default: Any) -> Any:
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else default
