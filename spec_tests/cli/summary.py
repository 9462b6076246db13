"""Summaries of a run for a job on GitHub and for a badge."""

import json
from pathlib import Path

from spec_tests.machine import record
from spec_tests.machine.input_files import RefusedError
from spec_tests.machine.record import VERDICTS
from spec_tests.reporting.evidence import group_by_cause
from spec_tests.reporting.markdown import escape, format_table
from spec_tests.reporting.runs import Run


def as_markdown(run: Run) -> str:
    """Return a page with the conclusion, counts by chapter, and the causes of failures."""
    counts = record.count_by_chapter(run.verdicts).items()
    rows = [(title, *(found[each] for each in VERDICTS)) for title, found in counts]
    failed = {name: each for name, each in run.evidence.items() if each.verdict == "fail"}
    groups = group_by_cause(failed)
    causes = [f"* {escape(cause)}: {', '.join(names)}" for cause, names in groups]
    head = [f"# {escape(run.label)}", "", _claim(run), ""]
    return "\n".join([*head, *format_table(("chapter", *VERDICTS), rows), "", *causes, ""])


def as_badge(run: Run) -> str:
    """Return the JSON from which shields.io makes a badge."""
    word, text = record.conclude(run.verdicts, run.about.get("suite", ""))
    color = {"conforms": "brightgreen", "does not conform": "red"}.get(word, "lightgrey")
    claim = f"{word}: {text}"
    badge = {"schemaVersion": 1, "label": "torch.nn.parallel", "message": claim, "color": color}
    return json.dumps(badge)


def _claim(run: Run) -> str:
    return record.claim(run.verdicts, run.about.get("suite", ""))


def write(path: Path, text: str) -> None:
    """Write a file.

    Raises:
        RefusedError: The file cannot be written.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RefusedError(str(error)) from None
