"""The verdict of each clause in each run, and the page reports/MATRIX.md."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from spec_tests.machine.clauses import Clause
from spec_tests.machine.conclusion import count_by_chapter
from spec_tests.machine.verdicts import VERDICTS
from spec_tests.reporting.causes import group_by_cause
from spec_tests.reporting.markdown import format_table
from spec_tests.reporting.runs import Run

_HEAD = """\
# The matrix

Each row is the published run of an implementation on a release of PyTorch and a machine. The
numbers count the clauses of today's [specification](../spec_tests/SPECIFICATION.md). A run says
nothing about the clauses that it left out or that the suite got later: they have *no verdict*. The
suite of a row with *an earlier suite* is not that of the newest run. The documentation site, which
`tox -e docs` builds, has the verdict of each clause.

The machine `sim` is the simulator, with the version of Python if it is not the default, and `h200`
[one GPU as three devices](gpu/README.md#results). The other machines are
[back ends](../spec_tests/BACK_ENDS.md#back-ends-that-were-tried) on a processor.

| verdict | meaning |
| --- | --- |
| fail | a test fails in facts that violate the clause |
| not-offered | the implementation lacks a name that a test of the clause uses |
| known | tests fail as the register of the implementation records |
| pass | all tests pass that were run |
| not-run | no test was run, or tests fail in facts of other clauses only |
| no verdict | the run left the clause out, or the suite got it later |

`python -m reports build` generates this page. The file of a run, behind its number, has the
smallest failing call of each clause that fails or is known, but for releases before 2.11.
"""


@dataclass(frozen=True)
class Matrix:
    """The verdicts of runs: a row for each clause of the specification, a column for each run.

    Args:
        clauses: The clauses by id.
        columns: The runs.
    """

    clauses: Mapping[str, Clause]
    columns: Sequence[Run]

    @cached_property
    def chapters(self) -> dict[str, list[Clause]]:
        """The clauses by chapter, in the order of the specification."""
        chapters: dict[str, list[Clause]] = {}
        for clause in self.clauses.values():
            chapters.setdefault(clause.chapter, []).append(clause)
        return chapters

    def counts(self, run: Run) -> dict[str, Counter[str]]:
        """Return the number of clauses with each verdict, by chapter, of the target and of all.

        The verdict of a clause without one is an empty text.
        """
        verdicts = {name: run.verdicts.get(name, "") for name in self.clauses}
        return count_by_chapter(verdicts, self.clauses)

    def clauses_with(self, run: Run, verdict: str) -> list[Clause]:
        """Return the clauses with a verdict."""
        clauses = self.clauses.values()
        return [clause for clause in clauses if run.verdicts.get(clause.id) == verdict]

    def by_cause(self, run: Run, verdict: str) -> list[tuple[str, list[Clause]]]:
        """Return causes with their clauses of a verdict; see `group_by_cause`."""
        ids = [clause.id for clause in self.clauses_with(run, verdict)]
        evidence = {name: run.evidence[name] for name in ids}
        groups = group_by_cause(evidence, run.violated_by_reference)
        return [(cause, [self.clauses[name] for name in names]) for cause, names in groups]

    def by_reason(self, run: Run, verdict: str) -> dict[str, list[Clause]]:
        """Return the clauses with a verdict for each reason."""
        clauses_of: dict[str, list[Clause]] = {}
        for clause in self.clauses_with(run, verdict):
            clauses_of.setdefault(run.evidence[clause.id].reason, []).append(clause)
        return clauses_of


def format_page(matrix: Matrix) -> str:
    """Return the page with a table of the runs."""
    newest = max(matrix.columns, key=lambda run: run.date, default=None)
    suite = newest.about.get("suite") if newest else None
    head = ("", "implementation", "torch", "machine", "date", *VERDICTS, "no verdict")
    rows = []
    for number, run in enumerate(matrix.columns, 1):
        note = "" if run.about.get("suite") == suite else ", an earlier suite"
        cells = f"[{number}]({run.file})", run.target, run.release, run.hardware
        counts = matrix.counts(run)["all"]
        numbers = (counts[each] for each in (*VERDICTS, ""))
        rows.append((*cells, f"{run.date[:10]}{note}", *numbers))
    return "\n".join([_HEAD, *format_table(head, rows), ""])
