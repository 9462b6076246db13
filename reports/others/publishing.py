"""Publish the run of an implementation, reduced to one test per clause."""

import json
import re
from pathlib import Path

from reports.others.catalogue import Implementation
from reports.publishing import publish as reports
from spec_tests.harness.conformance import verdicts

__all__ = ["publish"]

#: The number of characters to keep of a reason.
_REASON = 160
#: Absolute paths.
_FOLDERS = re.compile(r"(?<![\w.])/(?:[\w.+-]+/)+")
#: The header that pytest-xdist adds to a failure in a worker.
_WORKER = re.compile(r"^\[gw\d+\] .*\n", re.MULTILINE)


def publish(implementation: Implementation, saved: Path) -> Path:
    """Write the report and return its folder."""
    reduced = saved.with_suffix(".clauses.jsonl")
    header, *_ = saved.read_text(encoding="utf-8").splitlines()
    lines = [header, *map(json.dumps, reduce_to_clauses(verdicts.read(saved)))]
    reduced.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return reports.publish([reduced], implementation.report_target)


def reduce_to_clauses(tests: list[dict[str, str]]) -> list[dict[str, str]]:
    """Return for each clause the first test that has the verdict of the clause."""
    found = verdicts.by_clause(tests)
    lines: dict[str, dict[str, str]] = {}
    for test in tests:
        name = test.get("clause", "")
        if name not in lines and found.get(name) == test["verdict"]:
            reason = {"reason": _shorten(test["reason"])} if "reason" in test else {}
            lines[name] = {key: test[key] for key in ("clause", "test", "verdict")} | reason
    return [lines[name] for name in sorted(lines)]


def _shorten(reason: str) -> str:
    """Return the beginning of a reason, without folders and workers of the machine."""
    return _FOLDERS.sub("", _WORKER.sub("", reason))[:_REASON]
