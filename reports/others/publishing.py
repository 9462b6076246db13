"""A report of one implementation: one verdict a clause, with the reason where it does not pass."""

import json
import re
from pathlib import Path

from reports import publish as reports
from reports.others.catalogue import Implementation
from spec_tests.harness.conformance import verdicts

__all__ = ["publish"]

#: Letters of a reason that are kept.
_REASON = 160
#: Where things lie on the machine of the run, and what pytest-xdist says of its worker.
_PLACES = re.compile(r"(?<![\w.])/(?:[\w.+-]+/)+")
_WORKER = re.compile(r"^\[gw\d+\] .*\n", re.MULTILINE)


def publish(wanted: Implementation, saved: Path) -> Path:
    """Write the report and return its folder."""
    small = saved.with_suffix(".clauses.jsonl")
    about, *_ = saved.read_text(encoding="utf-8").splitlines()
    lines = [about, *map(json.dumps, by_clause(verdicts.read(saved)))]
    small.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return reports.publish([small], wanted.name)


def by_clause(tests: list[dict[str, str]]) -> list[dict[str, str]]:
    """For each clause the first test with the gravest verdict."""
    found = verdicts.by_clause(tests)
    lines: dict[str, dict[str, str]] = {}
    for test in tests:
        name = test.get("clause", "")
        if name not in lines and found.get(name) == test["verdict"]:
            reason = {"reason": _told(test["reason"])} if "reason" in test else {}
            lines[name] = {key: test[key] for key in ("clause", "test", "verdict")} | reason
    return [lines[name] for name in sorted(lines)]


def _told(reason: str) -> str:
    """What a reader elsewhere can use of a reason."""
    return _PLACES.sub("", _WORKER.sub("", reason))[:_REASON]
