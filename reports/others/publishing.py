"""Publish the verdicts of an implementation, reduced to one test per clause."""

import json
import re
from pathlib import Path

from reports.others.catalogue import Implementation
from reports.publishing import publish as reports
from spec_tests.harness.conformance import verdicts

__all__ = ["publish"]

#: Number of characters of a failure's reason that are published.
_REASON_LENGTH = 160
#: Matches the folders of an absolute path, which must not be published.
_FOLDERS = re.compile(r"(?<![\w.])/(?:[\w.+-]+/)+")
#: Matches the line "[gw0] ..." that pytest-xdist adds to a failure in a worker process.
_WORKER = re.compile(r"^\[gw\d+\] .*\n", re.MULTILINE)


def publish(implementation: Implementation, verdicts_file: Path) -> Path:
    """Write a report of the verdicts in ``verdicts_file``; return the report's folder."""
    reduced = verdicts_file.with_suffix(".clauses.jsonl")
    header, *_ = verdicts_file.read_text(encoding="utf-8").splitlines()
    lines = [header, *map(json.dumps, reduce_to_clauses(verdicts.read(verdicts_file)))]
    reduced.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return reports.publish([reduced], implementation.report_target)


def reduce_to_clauses(tests: list[dict[str, str]]) -> list[dict[str, str]]:
    """Return for each clause the first test that has the clause's verdict."""
    clause_verdicts = verdicts.by_clause(tests)
    lines: dict[str, dict[str, str]] = {}
    for test in tests:
        name = test.get("clause", "")
        if name not in lines and clause_verdicts.get(name) == test["verdict"]:
            reason = {"reason": _shorten(test["reason"])} if "reason" in test else {}
            lines[name] = {key: test[key] for key in ("clause", "test", "verdict")} | reason
    return [lines[name] for name in sorted(lines)]


def _shorten(reason: str) -> str:
    """Return the beginning of a reason, without absolute folders and "[gw0]" lines."""
    return _FOLDERS.sub("", _WORKER.sub("", reason))[:_REASON_LENGTH]
