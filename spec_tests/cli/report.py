"""The command ``report``: print saved verdicts, and write a page that compares runs."""

import argparse
import json
import sys
from pathlib import Path

from spec_tests.machine import clauses, conclusion, input_files
from spec_tests.machine.verdicts import VERDICTS
from spec_tests.reporting import runs
from spec_tests.reporting.causes import causes_by_title
from spec_tests.reporting.markdown import escape, format_table
from spec_tests.reporting.runs import Run

#: The folders with published runs: one of the checkout, and the installed package.
PUBLISHED = (Path(__file__).resolve().parents[2] / "reports", Path(__file__).resolve().parents[1])
#: The color of the badge for each conclusion.
_COLORS = {
    "conforms": "brightgreen",
    conclusion.AS_REFERENCE: "green",
    "does not conform": "orange",
    "is not decided": "lightgrey",
}


def main(options: argparse.Namespace) -> int:
    """Print the table of each file, write the page, and return the exit status.

    Raises:
        input_files.RefusedError: A file is not valid, or the page cannot be written.
    """
    try:
        from spec_tests.reporting import pages
    except ModuleNotFoundError as error:  # pip installs jinja2 with [report].
        print(f"missing: {error.name}\nremedy: pip install {error.name}", file=sys.stderr)
        return 1

    shown = [runs.load_file(path) for path in options.file]
    for path, run in zip(options.file, shown, strict=True):
        if "incomplete" in run.about:
            print(f"{path}: {run.about['incomplete']}")
        print("\n".join(conclusion.summary_lines(run.evidence, clauses.load(), run.conclusion)))
    default = next((folder for folder in PUBLISHED if any(folder.glob(runs.RESULTS))), None)
    pages.write_report(options.file, default, options.to)
    if options.summary:
        input_files.write(options.summary, "\n".join(map(as_markdown, shown)))
    if options.badge:
        input_files.write(options.badge, as_badge(shown[0]))
    written = filter(None, (options.to, options.summary, options.badge))
    print(f"wrote {', '.join(map(str, written))}")
    return 0


def as_markdown(run: Run) -> str:
    """Return a page with the conclusion, counts by chapter, and the causes of failures."""
    counts = conclusion.count_by_chapter(run.verdicts, clauses.load()).items()
    rows = [(title, *(number_of[verdict] for verdict in VERDICTS)) for title, number_of in counts]
    causes: list[str] = []
    for title, groups in causes_by_title(run.evidence, run.violated_by_reference).items():
        lines = (f"* {escape(cause)}: {', '.join(names)}" for cause, names in groups)
        causes += ["", title, "", *lines]
    notes = filter(None, (run.about.get("incomplete"), *run.conclusion.notes))
    head = [f"# {escape(run.label)}", "", run.conclusion.claim, *notes, ""]
    return "\n".join([*head, *format_table(("chapter", *VERDICTS), rows), *causes, ""])


def as_badge(run: Run) -> str:
    """Return the JSON from which shields.io makes a badge."""
    found = run.conclusion
    badge = {
        "schemaVersion": 1,
        "label": "torch.nn.parallel",
        "message": f"{found.word}: {found.decided}",
        "color": _COLORS[found.word],
    }
    return json.dumps(badge)
