"""The command ``report``: print saved verdicts, and write a page that compares runs."""

import argparse
import sys
from pathlib import Path

from spec_tests.cli import doctor
from spec_tests.machine import record

#: The modules that pip installs with ``[report]``.
MODULES = ("jinja2",)
#: The folders with published runs: one in the root of a checkout, and the installed package.
PUBLISHED = (Path("reports"), Path(__file__).resolve().parents[1])
EXTRA = "remedy: pip install 'torch-parallel-spec[report]'"


def main(options: argparse.Namespace) -> int:
    """Print the table of each file, write the page, and return the exit status.

    Raises:
        input_files.RefusedError: A file is not valid, or the page cannot be written.
    """
    if is_missing():
        return 1
    from spec_tests.cli import summary
    from spec_tests.reporting import pages, runs

    for path in options.file:
        print("\n".join(_format_table(path)))
    default = next((each for each in PUBLISHED if any(each.glob(runs.RESULTS))), None)
    pages.write_report(options.file, default, options.to)
    shown = [runs.load_file(path) for path in options.file]
    if options.summary:
        summary.write(options.summary, "\n".join(map(summary.as_markdown, shown)))
    if options.badge:
        summary.write(options.badge, summary.as_badge(shown[0]))
    print(f"wrote {options.to}")
    return 0


def is_missing() -> bool:
    """Return whether a module of ``[report]`` is not installed, and print its name."""
    missing = doctor.missing(MODULES)
    if missing:
        print(f"missing: {', '.join(missing)}\n{EXTRA}", file=sys.stderr)
    return bool(missing)


def _format_table(path: Path) -> list[str]:
    """Return the lines of the table of a file of verdicts, or of a published run."""
    from spec_tests.reporting import evidence

    if path.suffix == ".json":
        _, found = evidence.read_published(path)
        return record.table({clause: each.verdict for clause, each in found.items()})
    run, tests = record.read_run(path)
    decided = record.by_clause(tests)
    lines = [f"{path}: the run was interrupted"] if run.get("interrupted") else []
    lines += record.table(decided, record.declared_by_clause(tests))
    return [*lines, record.claim(decided, run.get("suite", ""))]
