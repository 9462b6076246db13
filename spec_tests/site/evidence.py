"""Why a clause has its verdict: what differed, the smallest call, and what repeats it."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from spec_tests.harness.conformance.verdicts import VERDICTS
from spec_tests.site.runs import Run

__all__ = ["Evidence", "Shared", "commands", "of_clause", "shared"]


@dataclass(frozen=True)
class Evidence:
    """What one run says of one clause.

    Args:
        verdict: Of the clause.
        test: The gravest of its tests, the first of several.
        difference: What differed, or why it was not run.
        call: The smallest call that shows it; empty if the file has none.
        others: How many more tests of the clause have the same verdict.
    """

    verdict: str
    test: str
    difference: str
    call: str
    others: int


@dataclass(frozen=True)
class Shared:
    """Evidence that is the same in several runs, told once."""

    evidence: Evidence
    runs: Sequence[Run]


def of_clause(run: Run, clause: str) -> Evidence | None:
    """What ``run`` says of a clause; None if it did not judge it."""
    verdict = run.verdicts.get(clause)
    if verdict is None:
        return None
    same = [test for test in run.tests_of[clause] if test["verdict"] == verdict]
    first = min(same, key=lambda test: "call" not in test)
    words, call = first.get("difference", first.get("reason", "")), first.get("call", "")
    # Where the words hold the call, too, it need not be read twice.
    told = words.replace(call, "the call above") if call else words
    return Evidence(verdict, first["test"], told, call, len(same) - 1)


def shared(columns: Sequence[Run], clause: str) -> list[Shared]:
    """The evidence of a clause, gravest first; what is equal stands once."""
    found: dict[Evidence, list[Run]] = {}
    for run in columns:
        evidence = of_clause(run, clause)
        if evidence is not None:
            found.setdefault(evidence, []).append(run)
    ordered = sorted(found.items(), key=lambda pair: VERDICTS.index(pair[0].verdict))
    return [Shared(evidence, runs) for evidence, runs in ordered]


def commands(runs: Sequence[Run], clause: str) -> list[str]:
    """What repeats a clause's tests on the targets of ``runs``, each command once."""
    return list(dict.fromkeys(_command(run, clause) for run in runs))


def _command(run: Run, clause: str) -> str:
    about = run.about
    plain = ["parallel-conformance", "run", str(about["target"])]
    accelerator = about.get("accelerator") or run.hardware.partition("-")[0]
    given = about.get("command") or shlex.join([*plain, f"--accelerator={accelerator}"])
    return f"{given} --clause={shlex.quote(clause)}"
