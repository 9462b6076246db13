"""Makes failures and verdicts of exceptions, and of tests that end their process.

* `pytest_runtest_makereport` gets the exception of a test. `_judge` makes a failure of it, and
  `_report_failure` adds it to the report, as *known* if a record of the register expects it.
* `workers.Workers` judges a test that ends its process, in the process that has started it.
* `add_failure` puts the failure into the report of the test, with the clauses that it violates
  (`violated_by`). The test does not decide its other clauses.

A test that uses a name that the target lacks is *not-offered*. If ``lacks`` of the register
declares the name, it is no error. A test that uses a feature or operator that the devices lack is
*not-run*, unless the target itself uses it. A failure whose facts a record expects is *known*.
"""

import functools
import re
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis.errors import Flaky, FlakyFailure, HypothesisException

from spec_tests.failure import (
    CheckError,
    Fact,
    Failure,
    forget,
    line_in_package,
    noted_error,
    of_exception,
    of_hidden,
    show,
)
from spec_tests.machine import clauses, programs, register, time_limit, verdicts
from spec_tests.machine.capabilities import skip_missing
from spec_tests.machine.clauses import Clause
from spec_tests.machine.fixtures import register_of
from spec_tests.machine.options import options_for_test, suite_of, target_of
from spec_tests.machine.register import Divergence
from spec_tests.machine.target import missing_name, not_offered_text

#: The failures of a test that ends its process, by itself or at the time limit. In the report of
#: the setup of a test, the kind is a key for the id of a record that expects the failure.
PROCESS_ENDED = Failure("ended", (Fact("process", "ended"),), "the test ends the process")
TIME_IS_UP = Failure("time", (Fact("process", "time limit"),), "the time limit ends the test")
#: A line of pytest about an option that changes nothing in `parallel-conformance run`.
_HINT = "Use -v to get more diff"
#: Matches the address of an object or of memory, which each run changes.
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}|(?<![.\d])\d{12,15}(?!\.?\w)")
#: The number of frames that are kept at both ends of a long traceback.
_FIRST, _LAST = 100, 20

#: The failures of the examples that Hypothesis has drawn for a test.
_EXAMPLES = pytest.StashKey[list[Failure]]()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Store which records expect that the test ends its process."""
    forget()
    item.stash[_EXAMPLES] = []
    # The report of the setup has them.
    item.user_properties += [
        (ended.kind, record.id)
        for record in item.stash.get(register.RECORDS, [])
        for ended in (PROCESS_ENDED, TIME_IS_UP)
        if ended.is_expected(record.expects)
    ]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Store the failure of each example that Hypothesis draws for the test."""
    time_limit.start_example(pyfuncitem, {})
    handle = getattr(pyfuncitem.obj, "hypothesis", None)
    if handle is None or not clauses.clauses_of_test(pyfuncitem):
        return (yield)
    with patch.object(handle, "inner_test", _observed(handle.inner_test, pyfuncitem)):
        return (yield)


def _observed(test: Callable[..., Any], item: pytest.Item) -> Callable[..., Any]:
    """Return the test, which stores its failures. Hypothesis calls it for each example."""

    @functools.wraps(test)
    def observed(*args: Any, **kwargs: Any) -> Any:
        forget()
        given = getattr(item, "fixturenames", ())
        drawn = {name: value for name, value in kwargs.items() if name not in given}
        time_limit.start_example(item, drawn)
        try:
            return test(*args, **kwargs)
        except HypothesisException:
            raise
        except (Exception, pytest.fail.Exception) as error:
            failure = of_exception(error, item.path)
            if isinstance(error, CheckError):
                error.failure = failure  # The next example forgets it.
            item.stash[_EXAMPLES].append(failure)
            raise

    return observed


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Set the outcome of a test, and add its failure and its program to the report."""
    if not clauses.clauses_of_test(item):
        return (yield)
    show_first_failure(call, item.stash.get(_EXAMPLES, []))
    cut_tracebacks(call)
    error = None if call.excinfo is None else call.excinfo.value
    failure: Failure | None
    try:
        report = yield
        missing = None if error is None else not_offered_text(error)
        lacks = not missing and skip_missing(call, report, target_of(item.config))
    except (Exception, SystemExit) as other:  # An object of the target raises it when it is shown.
        assert error is not None
        failure = of_hidden(error, other)
        report = _without_details(item, call, failure)
    else:
        failure = None if lacks else _judge(item, error, missing, report)
    if failure is not None:
        _report_failure(item, call, report, failure)
    return report


def _judge(
    item: pytest.Item, error: BaseException | None, missing: str | None, report: pytest.TestReport
) -> Failure | None:
    """Set the outcome of a test; return its failure, or None if it passes or is not run.

    ``missing`` is the text of the error if the target lacks a name.
    """
    if error is None:
        records = item.stash.get(register.RECORDS, [])
        if report.when != "call" or not records:
            return None
        names = " and ".join(record.name for record in records)
        remedy = _describe_remedy(item, records)
        failure = Failure(
            "stale-record",
            (Fact("register", "stale"),),
            f"{names} names this test, but the test passes: {remedy}",
        )
    elif missing:
        name = missing_name(missing)
        if name in item.config.stash.get(register.LACKS, frozenset()):
            report.outcome = "skipped"
            text = f"Skipped: not offered, as declared: {missing}"
            report.longrepr = (str(item.path), 0, text)
            report.user_properties.append((verdicts.DECLARED, name))
            return None
        failure = Failure("not-offered", (Fact("not offered", name),), missing)
    else:
        return None if report.skipped else _describe_failure(item, error)
    report.outcome, report.longrepr = "failed", failure.text
    return failure


def _describe_remedy(item: pytest.Item, records: Sequence[Divergence]) -> str:
    """Return how a register no longer expects the failure of a test that passes."""
    path = register_of(item.config)
    if path is None or all(record.file == str(path) for record in records):
        return "remove the test from the record, or leave it out (-k) if it fails only sometimes"
    name = register.name_of(item, suite_of(item.config))
    return f"the record is inherited, so add {name!r} to `repaired` of {path}"


def _report_failure(
    item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport, failure: Failure
) -> None:
    """Add a failure to the report of its test, as *known* if a record expects it."""
    records = item.stash.get(register.RECORDS, [])
    expecting = [record.id for record in records if failure.is_expected(record.expects)]
    if records and not (expecting or failure.is_stale or failure.kind == "not-offered"):
        names = " and ".join(record.name for record in records)
        expected = " or ".join(repr(fact) for record in records for fact in record.expects)
        text = f"{names} expects {expected}, but the failure is {', '.join(failure.fact_texts)}"
        report.longrepr = f"{report.longrepr}\n\n{text}"
        failure = replace(failure, text=f"{failure.text}\n{text}")
    specification, chosen = clauses.of_run(item.config), item.config.getoption("--clause")
    add_failure(report, failure, specification, next(iter(expecting), ""), chosen)
    # The report of the teardown has the properties of the item, and --junitxml reads that one.
    violated = [name for key, name in report.user_properties if key == verdicts.VIOLATED]
    item.user_properties += [("violates", name) for name in violated]
    item.user_properties += [("fact", text) for text in failure.fact_texts]
    if not failure.is_stale:
        programs.add_program(item, call, report, failure, options_for_test(item.config))


def add_failure(
    report: pytest.TestReport,
    failure: Failure,
    specification: Mapping[str, Clause],
    record: str = "",
    chosen: Collection[str] = (),
) -> None:
    """Add a failure, and the clauses that it fails, to the report of a test.

    Args:
        report: The report, with the clauses of the test.
        failure: The failure.
        specification: The clauses of the suite by id.
        record: The id of the record that expects the failure, if there is one.
        chosen: The values of ``--clause``.
    """
    if record:
        report.outcome = "skipped"
        report.wasxfail = f"known: {record}"
    names = verdicts.clauses_in(report)
    kept = {*names, *(clauses.matching(chosen, specification) if chosen else specification)}
    selected = {name: clause for name, clause in specification.items() if name in kept}
    violated = violated_by(failure, names, selected)
    report.user_properties += [(verdicts.VIOLATED, name) for name in violated]
    report.user_properties.append((verdicts.FAILURE, failure.dumps()))


def violated_by(
    failure: Failure, names: Sequence[str], specification: Mapping[str, Clause]
) -> list[str]:
    """Return the clauses that a failure of a test violates.

    A fact violates the clauses of the test that are about it; if there are none, the first clause
    of the same function that is about it, or of several functions of the chapter; or else the
    first clause of the test.

    Args:
        failure: The failure.
        names: The clauses of the test.
        specification: By id, the clauses of the test, and those that the run selects.
    """
    failing = (each for fact in failure.facts for each in _about(fact, names, specification))
    return list(dict.fromkeys(failing)) or [*names[:1]]


def _about(fact: Fact, names: Sequence[str], specification: Mapping[str, Clause]) -> Sequence[str]:
    own = [name for name in names if specification[name].is_about(fact)]
    if own or not names:
        return own
    first = specification[names[0]]
    about = [
        each
        for each in specification.values()
        if each.chapter == first.chapter and each.is_about(fact)
    ]
    of_function = [each.id for each in about if each.function == first.function]
    of_several = [each.id for each in about if each.is_of_several]
    return (of_function or of_several or names)[:1]


def _describe_failure(item: pytest.Item, error: BaseException) -> Failure:
    """Return the failure of a test, with the facts of all its failing examples."""
    failure = of_exception(error, item.path)
    examples = item.stash.get(_EXAMPLES, [])
    facts = [fact for each in (failure, *examples) for fact in each.facts]
    drawn = programs.drawn_arguments(item, error)
    shown = {name: show(value) for name, value in drawn.items()}
    # The repr of a call is code; other arguments need their names.
    lines = [text if name == "call" else f"{name} = {text}" for name, text in shown.items()]
    if failure.call and failure.call not in shown.values():
        lines = []  # The test has made its call from the drawn values.
    elif "call" not in drawn:
        lines = [*filter(None, [programs.call_of(item)]), *lines]
    text = failure.text.replace(_HINT, "").rstrip() or type(error).__name__
    place = line_in_package(error, target_of(item.config)) if failure.kind == "error" else ""
    text += f"\nat {place}" if place else ""
    call = "\n".join(lines) or failure.call
    texts: dict[str, Any] = {
        name: _ADDRESS.sub("…", value) for name, value in (("text", text), ("call", call))
    }
    return replace(failure, facts=tuple(dict.fromkeys(facts)), **texts)


def cut_tracebacks(call: pytest.CallInfo[None]) -> None:
    """Remove the middle of long tracebacks of an error and of the errors that led to it.

    pytest compares the local variables of all frames of a RecursionError, which may take minutes.
    """
    error = None if call.excinfo is None else call.excinfo.value
    while error is not None:
        entries, entry = [], error.__traceback__
        while entry is not None:
            entries.append(entry)
            entry = entry.tb_next
        if len(entries) > _FIRST + _LAST:
            entries[_FIRST - 1].tb_next = entries[-_LAST]
        error = error.__cause__ or error.__context__


def show_first_failure(call: pytest.CallInfo[None], examples: list[Failure]) -> None:
    """Show the first failure if Hypothesis reports that a repetition of the call differs."""
    error = None if call.excinfo is None else call.excinfo.value
    if isinstance(error, FlakyFailure):
        first = error.exceptions[0]
        if first.__traceback__ is None:  # Hypothesis may have lost it.
            first = first.with_traceback(error.__traceback__)
        call.excinfo = pytest.ExceptionInfo.from_exception(first)
    elif isinstance(error, Flaky):  # Hypothesis has lost the failure.
        text = "the calls of a failure have other results when they are repeated"
        failure = Failure("differs", (Fact("output", "not repeatable"),), text)
        if examples:
            failure = replace(examples[-1], text=f"{examples[-1].text}\n{text}")
        call.excinfo = pytest.ExceptionInfo.from_exception(
            noted_error(failure).with_traceback(error.__traceback__)
        )


def _without_details(
    item: pytest.Item, call: pytest.CallInfo[None], failure: Failure
) -> pytest.TestReport:
    """Return the report of a failed test whose error cannot be shown."""

    def fail() -> None:
        raise AssertionError(failure.text) from None  # The error that is handled cannot be shown.

    shown = pytest.CallInfo.from_call(fail, call.when)
    return pytest.TestReport.from_item_and_call(item, shown)
