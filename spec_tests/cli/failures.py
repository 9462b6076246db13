"""The failures of a run, by cause, and the programs that repeat them."""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from spec_tests.failure import Failure, shorten
from spec_tests.machine import clauses, options, register, verdicts
from spec_tests.machine.target import REFERENCE
from spec_tests.machine.verdicts import Evidence, TestVerdict
from spec_tests.reporting.causes import causes_by_title

#: The folder of the programs, below the current one.
FOLDER = Path("repro")
#: The first line of each program.
_NOTE = "# A run replaces this file: copy it before you change it."
#: The largest number of lines of a call, and of each end of a difference.
MAX_LINES, MAX_END = 14, 7
#: The greatest number of characters of a line.
MAX_LENGTH = 400
#: The greatest number of clauses that the list at the end has for a cause.
MAX_CLAUSES = 5


class Failures:
    """The failures of a run.

    Args:
        command: The command of the run.
    """

    def __init__(self, command: str = "") -> None:
        self.command = command
        self._programs: Counter[str] = Counter()
        self._statements = {name: clause.noted for name, clause in clauses.load().items()}
        self._violated = register.violated_by_reference()
        self._shown: set[tuple[str, ...]] = set()
        #: For each clause, the command that repeats its first failure.
        self._commands: dict[str, str] = {}

    def add(self, report: pytest.TestReport) -> list[str]:
        """Store a failure and write its program.

        Returns:
            The lines that describe the failure; none if it is not the first one of its clauses.
        """
        tests = [test for test in verdicts.verdicts_of(report) if test.verdict == "fail"]
        names = [test.clause or "no clause" for test in tests]  # A worker ended in a setup.
        failure = tests[0].failure
        assert failure is not None
        failures = {(name, *failure.key) for name in names}
        if failures <= self._shown:
            return []
        self._shown |= failures
        own = verdicts.clauses_in(report)
        # If the test is not marked with the violated clause, this clause does not select the test.
        chosen = [names[0], *([] if names[0] in own else own[:1])]
        repeat = options.repeat_command(self.command, report.nodeid, chosen)
        program = dict(report.user_properties).get(verdicts.PROGRAM)
        run = self._write_program(names[0], str(program)) if program is not None else None
        is_new = not self._commands.keys() >= {*names}
        self._commands |= {name: run or repeat for name in names if name not in self._commands}
        if not is_new:
            return []
        if failure.is_stale:
            return [f"FAIL {', '.join(names)}  {report.nodeid}", f"  {failure.text}", ""]
        compared = register.compare_with_reference(names, failure)
        return [
            f"FAIL {', '.join(names)}  {report.nodeid}",
            *(f"  {self._statements.get(name, '')}" for name in names),
            *([f"  {compared}"] if compared else []),
            *(f"  | {shorten(line, MAX_LENGTH)}" for line in _lines(failure)),
            *([f"  program: {run}"] if run else []),
            f"  repeat: {repeat}",
            "",
        ]

    def _write_program(self, clause: str, text: str) -> str:
        """Write a program of a clause to a file, and return the command that runs it."""
        self._programs[clause] += 1
        number = self._programs[clause]
        if number == 1:
            remove_programs([clause])
        # pytest explains assertions only in files whose names have no other dot.
        name = clause.replace(".", "_") + (f"_{number}" if number > 1 else "")
        path = FOLDER / f"{name}.py"
        FOLDER.mkdir(exist_ok=True)
        path.write_text(f"{_NOTE}\n{text}", encoding="utf-8")
        return f"python {path}"

    def summary(self, tests: Iterable[TestVerdict]) -> list[str]:
        """Return the lines about each cause of the failures of a run, the most frequent first.

        Causes with clauses that torch.nn.parallel passes come before the others.
        """
        evidence = verdicts.find_evidence(tests)
        lines = []
        for head, causes in causes_by_title(evidence, self._violated).items():
            lines += [head]
            for cause, names in causes:
                lines += self._describe(cause, names, evidence)
        return lines

    def _describe(
        self, cause: str, names: list[str], evidence: Mapping[str, Evidence]
    ) -> list[str]:
        # In the order in which the clauses failed. Those of a resumed run come last.
        place = {name: index for index, name in enumerate(self._commands)}
        last = len(place)
        names = sorted(names, key=lambda name: (name in self._violated, place.get(name, last)))
        is_mixed = not self._violated.issuperset(names)
        lines = [f"FAIL {clauses.format_count(len(names))}: {cause}"]
        for name in names[:MAX_CLAUSES]:
            known = self._compare(name, evidence[name].failure, is_mixed)
            lines.append(f"  {name}{known}  {self._commands.get(name, '')}".rstrip())
        if more := len(names[MAX_CLAUSES:]):
            lines.append(f"  and {clauses.format_count(more, 'more clause')}")
        return lines

    def _compare(self, name: str, failure: Failure | None, is_mixed: bool) -> str:
        """Return a text in parentheses if torch.nn.parallel violates a clause, else an empty one.

        ``is_mixed`` says whether the list has clauses that torch.nn.parallel passes.
        """
        if failure is None or failure.is_stale or name not in self._violated:
            return ""
        if register.fails_otherwise([name], failure):
            return f" ({register.OTHERWISE})"
        return f" ({REFERENCE} violates it, too)" if is_mixed else ""


def remove_programs(names: Iterable[str]) -> None:
    """Remove the programs that earlier runs have written for clauses."""
    for name in names:
        stem = name.replace(".", "_")
        for path in (*FOLDER.glob(f"{stem}.py"), *FOLDER.glob(f"{stem}_[0-9]*.py")):
            if path.read_text("utf-8").startswith(_NOTE):
                path.unlink()


def _lines(failure: Failure) -> list[str]:
    """Return the first lines of the call, and both ends of the difference."""
    lines = [line for line in failure.text.splitlines() if line.strip(" ~^")]
    # Stacks of threads are shown whole. A traceback, also of a replica, ends with its error.
    if failure.kind != "time" and len(lines) > 2 * MAX_END:
        lines = [*lines[:MAX_END], *lines[-MAX_END:]]
    return [*failure.call.splitlines()[:MAX_LINES], *lines]
