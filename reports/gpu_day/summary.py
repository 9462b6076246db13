"""What the files of a folder say, as one page."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from reports import benchmarks
from spec_tests.harness.conformance import verdicts

from .ledger import Entry
from .rows import rows
from .steps import Step

__all__ = ["summary"]

#: Files of verdicts, and how many failures of each the page lists.
_FILES = ("verdicts-2", "verdicts-3", "reference", "checks")
_LISTED = 40
_NOT_HERE = "Not measured: DataParallel with its replicas in turn, which impl does not offer."


def summary(steps: Sequence[Step], entries: Sequence[Entry], out: Path) -> str:
    """The page: what must be reached, each step, verdicts, differences, and the ratios.

    Args:
        steps: All there is to do.
        entries: What was done.
        out: The folder of the results.
    """
    figures = _json(out / "benchmark.json", {})
    lines = ["# One day on a GPU", "", *_rows(figures), _NOT_HERE, ""]
    lines += [*_steps(steps, entries), *_verdicts(out), *_differences(out)]
    for name, data in figures.items():
        lines += [f"## {name}", "", benchmarks.summary(data, {}), ""]
    return "\n".join(lines)


def _rows(figures: dict[str, Any]) -> Iterator[str]:
    yield from ("| row | at least | found | |", "|---|---|---|---|")
    for row in rows(figures):
        found = "-" if row.found is None else f"{row.found:.2f}"
        yield f"| {row.name} | {row.wanted} | {found} | {row.verdict} |"
    yield ""


def _steps(steps: Sequence[Step], entries: Sequence[Entry]) -> Iterator[str]:
    yield from (
        "## Steps",
        "",
        "| step | tells | status | exit | seconds |",
        "|---|---|---|---|---|",
    )
    for step in steps:
        mine = [each for each in entries if each.step == step.name]
        last = mine[-1] if mine else Entry(step.name, "left for the next call")
        status = f"not-run: {last.tail}" if last.status == "not-run" else last.status
        code = "-" if last.code is None else str(last.code)
        seconds = sum(each.seconds for each in mine)
        yield f"| {step.name} | {step.purpose} | {status} | {code} | {seconds:.0f} |"
    yield ""
    yield from (each.tail for each in entries if each.step == "machine")


def _verdicts(out: Path) -> Iterator[str]:
    for name in _FILES:
        tests = verdicts.read(out / f"{name}.jsonl")
        if tests:
            counts = Counter(test["verdict"] for test in tests)
            numbers = ", ".join(f"{counts[each]} {each}" for each in verdicts.VERDICTS)
            yield from (f"## {name}: {numbers}", "")
            yield from _failures(tests)


def _failures(tests: Sequence[dict[str, str]]) -> Iterator[str]:
    """Each test that fails, once, with the first line of the reason."""
    failed = {test["test"]: test for test in tests if test["verdict"] == "fail"}
    for test in list(failed.values())[:_LISTED]:
        first = test.get("reason", "").partition("\n")[0]
        yield f"* `{test['test']}`: {first}"
    if len(failed) > _LISTED:
        yield f"* and {len(failed) - _LISTED} more"
    yield ""


def _differences(out: Path) -> Iterator[str]:
    found = _json(out / "differences.json", None)
    if found is not None:
        kinds = Counter(each["kind"] for each in found["differences"])
        yield from ("## differences", "")
        yield f"{found['calls']} calls on both, {found['differing']} differ."
        yield from (f"* {kind}: {count}" for kind, count in kinds.items())
        yield ""


def _json(file: Path, otherwise: Any) -> Any:
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else otherwise
