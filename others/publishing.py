"""A report of one implementation: one verdict a clause, with the reason where it does not pass."""

import json
from pathlib import Path

from others.catalogue import Implementation
from reports import publish as reports
from spec_tests.harness import verdicts

__all__ = ["publish"]

#: Letters of a reason that are kept.
_REASON = 160


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
            reason = {"reason": test["reason"][:_REASON]} if "reason" in test else {}
            lines[name] = {key: test[key] for key in ("clause", "test", "verdict")} | reason
    return [lines[name] for name in sorted(lines)]
