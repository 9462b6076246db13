"""The evidence for a verdict: the difference, the smallest call and the command."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from spec_tests.harness.conformance.verdicts import VERDICTS
from spec_tests.site.runs import Run

__all__ = ["Evidence", "SharedEvidence", "commands", "evidence_of", "group_evidence"]


@dataclass(frozen=True)
class Evidence:
    """The evidence for the verdict of one clause in one run.

    Args:
        verdict: The verdict of the clause.
        test: A test with the verdict of the clause, if possible one with a smallest failing call.
        difference: The difference, or the reason why the test was not run.
        call: The smallest failing call; empty if the file has none.
        others: The number of other tests with the same verdict.
    """

    verdict: str
    test: str
    difference: str
    call: str
    others: int


@dataclass(frozen=True)
class SharedEvidence:
    """Evidence that is equal in several runs."""

    evidence: Evidence
    runs: Sequence[Run]


def evidence_of(run: Run, clause: str) -> Evidence | None:
    """Return the evidence for a clause; None if the run has no verdict for the clause."""
    verdict = run.verdicts.get(clause)
    if verdict is None:
        return None
    same = [test for test in run.tests_of[clause] if test["verdict"] == verdict]
    first = min(same, key=lambda test: "call" not in test)
    text, call = first.get("difference", first.get("reason", "")), first.get("call", "")
    # The page shows the call above the difference, so the difference does not repeat it.
    difference = text.replace(call, "the call above") if call else text
    return Evidence(verdict, first["test"], difference, call, len(same) - 1)


def group_evidence(columns: Sequence[Run], clause: str) -> list[SharedEvidence]:
    """Return the evidence for a clause, worst verdict first, with the runs that share it."""
    found: dict[Evidence, list[Run]] = {}
    for run in columns:
        evidence = evidence_of(run, clause)
        if evidence is not None:
            found.setdefault(evidence, []).append(run)
    ordered = sorted(found.items(), key=lambda pair: VERDICTS.index(pair[0].verdict))
    return [SharedEvidence(evidence, runs) for evidence, runs in ordered]


def commands(runs: Sequence[Run], clause: str) -> list[str]:
    """Return the commands that repeat the tests of a clause on the targets of ``runs``."""
    return list(dict.fromkeys(_format_repeat_command(run, clause) for run in runs))


def _format_repeat_command(run: Run, clause: str) -> str:
    about = run.about
    default = ["parallel-conformance", "run", str(about["target"])]
    accelerator = about.get("accelerator") or run.hardware.partition("-")[0]
    command = about.get("command") or shlex.join([*default, f"--accelerator={accelerator}"])
    return f"{command} --clause={shlex.quote(clause)}"
