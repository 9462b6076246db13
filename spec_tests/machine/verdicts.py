"""The verdicts of a run: those of tests and clauses, their file, the table and the conclusion.

The verdicts are fail, not-offered, known, pass and not-run. *not-offered* means that the target
lacks a name that the test uses, *known* that the failure is a recorded divergence. The verdict of
a clause is the worst verdict of its tests, in the order above. A failed test that does not decide
one of its clauses, because its facts are those of others, is *not-run* for this clause; if no
test fails the clause, the clause is *not-run*, although other tests pass.

A file of verdicts has one JSON object on each line. The first line holds ``run``: the metadata of
the run, with the number of its tests in ``collected``. Each other line has the fields of a
`TestVerdict`. A line is written as soon as the test has ended, so that an interrupted run can be
resumed. The last line of an interrupted run is `INTERRUPTED`.
"""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TextIO

import pytest

from spec_tests.failure import Failure
from spec_tests.machine import clauses, input_files, register
from spec_tests.machine.target import REFERENCE

#: All verdicts, worst first.
VERDICTS = ("fail", "not-offered", "known", "pass", "not-run")
#: The format of a file of verdicts. Other formats are refused.
FORMAT = 2
#: The verdicts of a clause with failed tests that do not decide it, among the others.
_UNDECIDED = "undecided"
_WORST_FIRST = ("fail", "not-offered", "known", _UNDECIDED, "pass", "not-run")
#: The beginning of the reason of a clause that its failed test does not decide.
_IN_FACTS = "its tests fail in facts of"
#: Keys in the report of a test: its clauses that the run selects and the others, the JSON of its
#: failure, the missing name that the register declares, the program that repeats the failure, and
#: a clause that the failure fails.
CLAUSE, UNSELECTED = "clause", "clause that is not selected"
FAILURE, DECLARED, PROGRAM, FAILS = "failure", "declared", "program", "fails"
#: The metadata that a run has in common with the run that it resumes.
_OF_ONE_RUN = ("target", "reference", "torch", "accelerator", "devices", "suite")
#: The last line in the file of an interrupted run.
INTERRUPTED = {"interrupted": True}
#: The conclusion about a run that violates only clauses that torch.nn.parallel violates, too.
AS_REFERENCE = f"as {REFERENCE}"
#: The verdicts of clauses that the target violates.
_VIOLATED = ("fail", "not-offered", "known")


@dataclass(frozen=True)
class TestVerdict:
    """The verdict of a test, for one of its clauses.

    Args:
        test: The node id.
        verdict: One of `VERDICTS`.
        clause: The id of the clause; empty for a test of the suite itself.
        reason: Why the test was not run, or does not decide the clause.
        declared: The missing name that the test uses, if ``lacks`` of the register declares it.
        failure: The failure, if the test did not pass and was run. A test that is *not-run* and
            has a failure does not decide the clause.
    """

    __test__ = False

    test: str
    verdict: Literal["fail", "not-offered", "known", "pass", "not-run"]
    clause: str = ""
    reason: str = ""
    declared: str = ""
    failure: Failure | None = None

    @property
    def is_undecided(self) -> bool:
        """Whether the test fails, but does not decide the clause."""
        return self.verdict == "not-run" and self.failure is not None

    @property
    def rank(self) -> int:
        """The place among the verdicts for one clause, the worst first."""
        return _WORST_FIRST.index(_UNDECIDED if self.is_undecided else self.verdict)

    @property
    def fails_run(self) -> bool:
        """Whether the test fails the run. A missing name that ``lacks`` declares is no error."""
        return self.verdict in ("fail", "not-offered") and not self.declared

    def dumps(self) -> str:
        """Return the line of a file of verdicts."""
        found = {name: value for name, value in vars(self).items() if value}
        return json.dumps(found | ({"failure": self.failure.to_json()} if self.failure else {}))


@dataclass(frozen=True)
class Header:
    """The fields of the metadata of a run that readers need. There are others."""

    format: int
    target: str
    torch: str
    accelerator: str
    command: str
    date: str
    version: str = ""
    python: str = ""
    suite: str = ""
    collected: int = 0


def verdict_of(report: pytest.TestReport) -> str | None:
    """Return the verdict of a test; None if this phase (such as a passing setup) has none."""
    if hasattr(report, "wasxfail"):
        return "known"
    if report.failed:
        found = failure_of(report)
        return "not-offered" if found is not None and found.kind == "not-offered" else "fail"
    if report.skipped:
        return "not-offered" if property_of(report, DECLARED) else "not-run"
    return "pass" if report.when == "call" else None


def property_of(report: pytest.TestReport, name: str) -> str:
    """Return the first value of a property of a report; empty if it has none."""
    return next(iter(_properties(report, name)), "")


def failure_of(report: pytest.TestReport) -> Failure | None:
    """Return the failure in the report of a test, if it has one."""
    text = property_of(report, FAILURE)
    return input_files.convert(json.loads(text), Failure, "the report") if text else None


def clauses_in(report: pytest.TestReport) -> list[str]:
    """Return the clauses of the test of a report, also those that the run does not select."""
    return _properties(report, CLAUSE, UNSELECTED)


def _properties(report: pytest.TestReport, *names: str) -> list[str]:
    return [str(value) for key, value in report.user_properties if key in names]


def tests_of(report: pytest.TestReport) -> list[TestVerdict]:
    """Return the verdict of a test for each clause; an empty list without a verdict.

    A failed test has the verdict for the clauses that its failure fails, also if the run does not
    select them, and is *not-run* for its other clauses.
    """
    verdict = verdict_of(report)
    if verdict is None:
        return []
    reason = ""
    if report.skipped and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2].removeprefix("Skipped: ").removeprefix("not-run: ")
    found = failure_of(report)
    if (
        found is None and verdict == "fail"
    ):  # An error outside the tests, as in a plugin of pytest.
        found = Failure("error", (), report.longreprtext)
    fields: dict[str, Any] = {"reason": reason, "declared": property_of(report, DECLARED)}
    own = _properties(report, CLAUSE)
    fails = _properties(report, FAILS) or own or [""]
    others = [name for name in own if name not in fails]
    return [
        *(TestVerdict(report.nodeid, verdict, name, failure=found, **fields) for name in fails),  # type: ignore[arg-type]
        *(
            TestVerdict(report.nodeid, "not-run", name, f"{_IN_FACTS} {fails[0]}", "", found)
            for name in others
        ),
    ]


def read(path: Path) -> list[TestVerdict]:
    """Return the tests in a file of verdicts; an empty list if the file does not exist.

    Raises:
        input_files.RefusedError: The file cannot be read, or a line is not valid.
    """
    return _read_lines(path)[1] if os.path.lexists(path) else []


def read_run(path: Path) -> tuple[dict[str, Any], list[TestVerdict]]:
    """Return the metadata and the tests in a file of verdicts.

    The metadata of a run without verdicts for all tests contain ``incomplete``, a sentence.

    Raises:
        input_files.RefusedError: The file cannot be read, a line is not valid, or the file has no
            tests or not one line of metadata.
    """
    headers, tests, is_interrupted = _read_lines(path)
    if not tests:
        raise input_files.RefusedError(f"{path} contains no verdicts")
    if len(headers) != 1:
        raise input_files.RefusedError(f"{path} contains {len(headers)} headers of runs, not one")
    header = headers[0]
    left = header.get("collected", 0) - len({test.test for test in tests})
    number = [f"{left} of {header['collected']} tests have no verdict"] if left > 0 else []
    if is_interrupted or number:
        state = "the run was interrupted" if is_interrupted else "this run has not ended"
        header["incomplete"] = ": ".join([state, *number])
    return header, tests


def _read_lines(path: Path) -> tuple[list[dict[str, Any]], list[TestVerdict], bool]:
    """Return the metadata and the tests in a file, and whether the run was interrupted."""
    headers, tests, is_interrupted = [], [], False
    for number, text in enumerate(input_files.read_text(path).split("\n"), 1):
        if not text:
            continue
        source = f"{path}, line {number}"
        line = input_files.convert(input_files.parse_json(text, source), dict[str, Any], source)
        is_interrupted = line == INTERRUPTED
        if "run" in line:
            headers.append(_check_header(line["run"], f"the header of {path}"))
        elif not is_interrupted:
            tests.append(_to_test(line, source))
    return headers, tests, is_interrupted


def _check_header(header: Any, source: str) -> dict[str, Any]:
    if input_files.convert(header, Header, source).format != FORMAT:
        text = f"the format {header['format']} is that of an earlier suite: run the suite again"
        raise input_files.refuse(source, text)
    found: dict[str, Any] = header
    return found


def _to_test(line: Mapping[str, Any], source: str) -> TestVerdict:
    test = input_files.convert(line, TestVerdict, source)
    if test.clause and not clauses.is_id(test.clause):
        raise input_files.refuse(source, f"{test.clause!r} is not the id of a clause")
    return test


@dataclass(frozen=True)
class Evidence:
    """The verdict of one clause in one run, with its evidence. A passing clause has none.

    Args:
        verdict: The verdict of the clause: the worst of its tests, by their `rank`.
        reason: Why the clause is not offered or was not run, or the clause that its tests fail.
        failure: The failure, also of a clause that is *not-run* because its failed tests do not
            decide it; None for a run of an earlier suite.
        test: A test with the verdict of the clause, if possible one with a smallest failing call.
        others: The number of other tests with the same verdict.
        declared: A missing name, if ``lacks`` of the register declares all that the tests use.
    """

    verdict: str
    reason: str = ""
    failure: Failure | None = None
    test: str = ""
    others: int = 0
    declared: str = ""

    @property
    def is_undecided(self) -> bool:
        """Whether tests of the clause fail, but only in facts of other clauses."""
        return self.verdict == "not-run" and self.failure is not None


def find_evidence(tests: Iterable[TestVerdict]) -> dict[str, Evidence]:
    """Return the verdict of each clause with its evidence, from the tests of a run."""
    found: dict[str, list[TestVerdict]] = {}
    for test in tests:
        if test.clause:
            found.setdefault(test.clause, []).append(test)
    return {name: _make_evidence(found[name]) for name in sorted(found)}


def _make_evidence(tests: Sequence[TestVerdict]) -> Evidence:
    """Return the evidence of the tests of one clause."""
    rank = min(test.rank for test in tests)
    same = [test for test in tests if test.rank == rank]
    if same[0].verdict == "pass":
        return Evidence("pass")
    first = min(
        same, key=lambda test: (bool(test.declared), not test.failure, not _has_call(test))
    )
    others = len(same) - 1
    if first.verdict == "not-offered":
        reason = first.failure.text if first.failure else first.reason
        return Evidence(first.verdict, reason, None, first.test, others, first.declared)
    return Evidence(first.verdict, first.reason, first.failure, first.test, others)


def _has_call(test: TestVerdict) -> bool:
    return test.failure is not None and bool(test.failure.call)


def by_clause(tests: Iterable[TestVerdict]) -> dict[str, str]:
    """Return the verdict of each clause: the worst of its tests, by their `rank`."""
    return {name: each.verdict for name, each in find_evidence(tests).items()}


def summary(
    found: Mapping[str, Evidence], suite: str | None = None, torch: str | None = None
) -> list[str]:
    """Return the lines about a run: counts, clauses that did not pass, and the conclusion.

    Args:
        found: The evidence for each clause.
        suite: See `conclude`.
        torch: See `conclude`.
    """
    verdict_of = {name: each.verdict for name, each in found.items()}
    lines = [f"{'chapter':<16}" + "".join(f"{verdict:>12}" for verdict in VERDICTS)]
    for title, counts in count_by_chapter(verdict_of).items():
        lines.append(f"{title:<16}" + "".join(f"{counts[each]:>12}" for each in VERDICTS))
    lines += [
        f"{each.verdict:>12}  {name}" + (f": {each.reason}" if each.verdict == "not-run" else "")
        for name, each in found.items()
        if each.verdict != "pass" and not each.declared
    ]
    if declared := [each.declared for each in found.values() if each.declared]:
        number, entries = clauses.count(len(declared)), ", ".join(dict.fromkeys(declared))
        lines.append(f"not offered, as the register declares: {number} ({entries})")
    missing = Counter(
        each.reason
        for each in found.values()
        if each.verdict == "not-offered" and not each.declared
    )
    lines += [f"{text}: {clauses.count(number)}" for text, number in missing.most_common()]
    if undecided := sum(each.is_undecided for each in found.values()):
        failed = undecided + sum(each.verdict == "fail" for each in found.values())
        lines.append(
            f"{undecided} of {clauses.count(failed)} with failed tests are not-run: their tests "
            "fail in facts of other clauses"
        )
    return [*lines, *filter(None, (claim(verdict_of, suite, torch), explain(verdict_of)))]


def count_by_chapter(found: Mapping[str, str]) -> dict[str, Counter[str]]:
    """Return the number of clauses with each verdict, for each chapter and in all.

    If a run has clauses that no target changes, "the target" counts the other ones.
    """
    members: dict[str, list[str]] = {}
    for name in sorted(found, key=_chapter_of):
        members.setdefault(_chapter_of(name), []).append(name)
    known = clauses.load()
    about_target = [name for name in found if name not in known or known[name].is_about_target]
    if len(about_target) < len(found):
        members["the target"] = about_target
    members["all"] = [*found]
    return {title: Counter(map(found.__getitem__, names)) for title, names in members.items()}


def _chapter_of(name: str) -> str:
    """Return the chapter of a clause; the first word of its id if the suite has it no longer."""
    known = clauses.load().get(name)
    return known.chapter if known else name.partition(".")[0]


def conclude(
    found: Mapping[str, str], suite: str | None = None, torch: str | None = None
) -> tuple[str, str]:
    """Return the conclusion of a run, and how many clauses it has decided.

    The conclusion is *conforms*, `AS_REFERENCE`, *does not conform*, or *is not decided*: fewer
    than nine of ten clauses about the target are decided, and no clause fails that
    torch.nn.parallel passes. A clause that was not run, or that needs a name that the target
    lacks, is not decided.

    Args:
        found: The verdict of each clause of the run.
        suite: The version of the suite in the metadata of a saved run; None for this version.
        torch: The version of PyTorch of a saved run; None for the installed one.
    """
    known = clauses.load()
    if suite not in (None, clauses.suite_version(known)):
        return "is not decided", f"the run is of another suite, {suite}"
    members = [each.id for each in known.values() if each.is_about_target]
    counts = Counter(found.get(name, "not-run") for name in members)
    decided = counts.total() - counts["not-run"] - counts["not-offered"]
    text = f"{decided} of {len(members)} decided, {len(known)} clauses"
    if not found.keys() >= {*members}:
        return "is not decided", text
    violated = {name for name in members if found[name] in _VIOLATED}
    first = violated - register.violated_by_reference(torch)
    # A failure of one clause may leave others undecided.
    if decided * 10 < len(members) * 9 and not any(found[name] == "fail" for name in first):
        return "is not decided", text
    if not violated:
        return "conforms", text
    text += "; " + ", ".join(f"{counts[each]} {each}" for each in _VIOLATED if counts[each])
    if not first:
        return AS_REFERENCE, text
    return "does not conform", f"{text}; {len(first)} of them pass in {REFERENCE}"


def claim(found: Mapping[str, str], suite: str | None = None, torch: str | None = None) -> str:
    """Return whether a run conforms to the suite, as a sentence; see `conclude`."""
    word, text = conclude(found, suite, torch)
    title = f"suite {clauses.VERSION}"
    place = {"is not decided": f"{title} {word}", AS_REFERENCE: f"{word} in {title}"}
    return f"{place.get(word, f'{word} to {title}')}: {text}"


def explain(found: Mapping[str, str]) -> str:
    """Return why a whole run has decided fewer clauses than the specification has, else ''."""
    known = clauses.load()
    members = [each.id for each in known.values() if each.is_about_target]
    if not found.keys() >= {*members}:
        return ""
    counts = Counter(found[name] for name in members)
    return (
        f"{len(known) - len(members)} of the {len(known)} clauses are about devices; of the other "
        f"{len(members)}, {counts['not-run']} are not-run, and {counts['not-offered']} need a "
        "name that the target lacks"
    )


class Recorder:
    """A plugin that collects the verdicts of a run, writes each one, and prints a summary.

    Args:
        jsonl: The file to write; None for no file.
        resume: Whether to continue the file of an interrupted run.
        metadata: Returns the metadata of the run for the first line of the file.

    Attributes:
        resumed_tests: The tests of the interrupted run that this run resumes.
        tests: Those tests, and the tests of this run so far.
        collected: The number of tests of this run.
    """

    def __init__(
        self,
        jsonl: str | None,
        *,
        resume: bool,
        metadata: Callable[[], dict[str, Any]],
    ) -> None:
        self._path = None if jsonl is None else Path(jsonl)
        self.resumed_tests = read(self._path) if resume and self._path is not None else []
        self.tests: list[TestVerdict] = []
        self._worst: dict[str, TestVerdict] = {}
        for test in self.resumed_tests:
            self._add(test)
        self.collected = 0
        self._metadata = metadata
        self._file: TextIO | None = None

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Refuse to resume a run of another target, suite or release, or on other devices."""
        if not self.resumed_tests or self._path is None:
            return
        now = self._metadata()
        for before in _read_lines(self._path)[0]:
            for name in _OF_ONE_RUN:
                if before.get(name) != now[name]:
                    raise pytest.UsageError(
                        f"{self._path} is of another run: {name} {before.get(name)!r}, and not "
                        f"{now[name]!r}; repeat the command without --resume"
                    )

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Store the number of tests. With pytest-xdist only the workers collect."""
        self.collected = len(session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Store the number of tests that a worker has collected."""
        self.collected = len(ids)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record the verdict of a test, once for each of its clauses."""
        for test in tests_of(report):
            if self._path is not None:
                if self._file is None:
                    self._file = self._open_file(self._path)
                self._file.write(test.dumps() + "\n")
                self._file.flush()
            self._add(test)

    def _add(self, test: TestVerdict) -> None:
        self.tests.append(test)
        if test.clause:
            worst = self._worst.setdefault(test.clause, test)
            self._worst[test.clause] = min(worst, test, key=lambda each: each.rank)

    @property
    def verdicts(self) -> dict[str, str]:
        """The verdict so far of each clause."""
        return {name: test.verdict for name, test in self._worst.items()}

    def _open_file(self, path: Path) -> TextIO:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Append if the run is resumed; otherwise overwrite an existing file.
        file = path.open("a" if self.tests else "w", encoding="utf-8")
        if not self.tests:
            # The first line of a new file is the metadata of the run.
            file.write(
                json.dumps({"run": self._metadata() | {"collected": self.collected}}) + "\n"
            )
        return file

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the counts by chapter, the clauses that did not pass, and the next command."""
        lines = self._summary()
        if lines:
            terminalreporter.section("clauses")
        for line in lines:
            terminalreporter.write_line(line)

    def _summary(self) -> list[str]:
        found = find_evidence(self.tests)
        if not found:
            return []
        left = self.collected - len({test.test for test in self.tests[len(self.resumed_tests) :]})
        lines = summary(found)
        if lost := [test.test for test in self.tests if test.fails_run and not test.clause]:
            lines.append(f"{len(lost)} tests failed before their clauses were known: {lost[0]}")
        if left > 0:
            lines.append(f"stopped: {left} of {self.collected} tests were not run")
        if not self.collected and self._is_done():
            lines.append(f"no test was run: {self._path} has the verdicts of all tests")
        if self._path is not None:
            lines.append(f"verdicts of all tests: {self._path}")
        before = "" if self._path else "--verdicts FILE, then "
        file = self._path or "FILE"
        lines.append(f"to write a web page: {before}parallel-conformance report {file}")
        return lines

    def interrupted(self) -> list[str]:
        """Mark the file as that of an interrupted run, and return the lines of the summary."""
        if self._file is None:
            return self._summary()
        self._file.write(json.dumps(INTERRUPTED) + "\n")
        self._file.flush()
        return [*self._summary(), "to continue: repeat the command with --resume"]

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail the run if the resumed run had failures. A resumed run may have no test left."""
        if _was_interrupted(session):
            self.interrupted()
        if session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and self._is_done():
            session.exitstatus = pytest.ExitCode.OK
        passed = session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
        if passed and any(test.fails_run for test in self.resumed_tests):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _is_done(self) -> bool:
        """Return whether the resumed file has the verdicts of all tests of its run."""
        if not self.resumed_tests or self._path is None:
            return False
        collected = max(each.get("collected", 0) for each in _read_lines(self._path)[0])
        return bool(collected <= len({test.test for test in self.resumed_tests}))

    def pytest_unconfigure(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def _was_interrupted(session: pytest.Session) -> bool:
    complete = (
        pytest.ExitCode.OK,
        pytest.ExitCode.TESTS_FAILED,
        pytest.ExitCode.NO_TESTS_COLLECTED,
    )
    return session.exitstatus not in complete or bool(session.shouldstop or session.shouldfail)
