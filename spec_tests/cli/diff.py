"""The command ``diff``: the clauses whose verdicts differ between two runs."""

import argparse
from collections.abc import Mapping

from spec_tests.machine import clauses, input_files
from spec_tests.machine.verdicts import VERDICTS, Evidence, Verdict
from spec_tests.reporting import runs
from spec_tests.reporting.markdown import format_table

#: The verdict of a clause that no test of a run decides.
ABSENT: Verdict = "not-run"
REGRESSION, IMPROVEMENT, APPEARED, GONE = "regression", "improvement", "appeared", "disappeared"
OTHERWISE = "fails otherwise"
#: What is printed in place of the verdict of a clause with a record out of date.
LEFT = "passes, still recorded"
#: A failure that the register of the new run records or declares, and a record out of date.
RECORDED, REPAIRED = "recorded", "repaired"
#: The number of recorded failures that are listed. If there are more, they are counted.
MAX_RECORDED = 5


def main(options: argparse.Namespace) -> int:
    """Print the clauses that differ, and write a page. Return 1 if there is a regression.

    Raises:
        input_files.RefusedError: A file is not valid, or the page cannot be written.
    """
    old = runs.load_file(options.old)
    new = runs.load_file(options.new, [old.name])
    changed = changes(old.evidence, new.evidence)
    for title, run in (("old", old), ("new", new)):
        state = f" ({run.about['incomplete']})" if "incomplete" in run.about else ""
        print(f"{title}: {run.label}{state}")
    before, after = (run.about.get("examples") for run in (old, new))
    if before != after and None not in (before, after):
        print(f"other failures may be found: {before} examples a test, now {after}")
    listed = f"listed in {options.to}" if options.to else "--to FILE lists them"
    gone = [each for each in changed if each[0] == GONE]
    passing = [each for each in changed if each[0] == APPEARED and each[-1] == "pass"]
    recorded = [each for each in changed if each[0] == RECORDED]
    counted_only = [*gone, *passing, *(recorded if len(recorded) > MAX_RECORDED else [])]
    for each in changed:
        if each not in counted_only:
            kind, name, before, after = each
            print(f"{kind:<15} {before:>11} -> {after:<11} {name}")
    for kind, counted, text in (
        (RECORDED, recorded, "whose failures the register of the new run has"),
        (APPEARED, passing, "with the verdict pass that the old run does not decide"),
        (GONE, gone, "that the new run does not decide"),
    ):
        if counted and counted[0] in counted_only:
            print(f"{kind:<15} {clauses.format_count(len(counted))} {text} ({listed})")
    count = sum(kind == REGRESSION for kind, *_ in changed)
    others, number = len(changed) - count - len(gone) - len(passing), len(new.verdicts)
    of_run = f"{clauses.format_count(number)} in the new run"
    regressions = clauses.format_count(count, "regression")
    total = f"{regressions}, {clauses.format_count(others, 'other change')}, {of_run}"
    print(total)
    if options.to:
        head = ("change", "clause", old.label, new.label)
        lines = ["# Changed clauses", "", total, "", *format_table(head, changed), ""]
        input_files.write(options.to, "\n".join(lines))
    return int(bool(count))


def changes(
    old: Mapping[str, Evidence], new: Mapping[str, Evidence]
) -> list[tuple[str, str, str, str]]:
    """Return kind, clause and both verdicts for each clause that differs, regressions first.

    A clause that fails only because of a record out of date has `LEFT` in place of a verdict.
    """
    changed = []
    for name in {**old, **new}:
        before, after = (each.get(name, Evidence(ABSENT)) for each in (old, new))
        if kind := _kind(before, after):
            changed.append((kind, name, _shown(before), _shown(after)))
    order = (REGRESSION, OTHERWISE, REPAIRED, IMPROVEMENT, RECORDED, APPEARED, GONE)
    return sorted(changed, key=lambda each: (order.index(each[0]), each[1]))


def _fails_otherwise(before: Evidence, after: Evidence) -> bool:
    """Return whether a test that both runs have, or the published failure, has other facts."""
    common = before.keys.keys() & after.keys.keys()
    if common:
        return any(before.keys[test] != after.keys[test] for test in common)
    return len({each.failure.key for each in (before, after) if each.failure}) == 2


def _shown(evidence: Evidence) -> str:
    return LEFT if evidence.is_stale else evidence.verdict


def _kind(before: Evidence, after: Evidence) -> str:
    """Return the kind of a change; empty if there is none. `VERDICTS` has the worst one first."""
    old, new = before.verdict, after.verdict
    if after.is_stale:
        return "" if before.is_stale else REPAIRED
    if before.is_stale and new != "pass":  # The tests of the old run passed.
        old = "pass"
    if old == new:
        return OTHERWISE if old != ABSENT and _fails_otherwise(before, after) else ""
    if old == "fail" and (new == "known" or after.declared):
        return RECORDED
    if old == "pass" and after.is_undecided:
        return REGRESSION
    if ABSENT in (old, new):
        return APPEARED if old == ABSENT else GONE
    return REGRESSION if VERDICTS.index(new) < VERDICTS.index(old) else IMPROVEMENT
