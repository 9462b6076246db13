"""Makes failures and verdicts of exceptions, and of tests that end their process.

* `pytest_runtest_makereport` gets the exception of a test. `_find_failure` makes a failure of it,
  and `_compare_with_records` compares it with the records of the register.
* `EndedTests` judges a test that ends its process, in the process that has started it.
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
from pathlib import Path
from typing import Any

import pytest
from hypothesis.errors import Flaky, FlakyFailure, HypothesisException

from spec_tests.failure import Fact, Failure, failed, forget, of_exception
from spec_tests.machine import clauses, programs, register, time_limit, verdicts
from spec_tests.machine.capabilities import skip_missing
from spec_tests.machine.clauses import Clause
from spec_tests.machine.fixtures import register_of
from spec_tests.machine.options import options_for_test, target_of
from spec_tests.machine.register import Divergence
from spec_tests.machine.target import missing_name, name_in

#: The failures of a test that ends its process, by itself or at the time limit. Each is also a key
#: in the report of a test for the id of a record that expects it.
PROCESS_ENDED = Failure("ended", (Fact("process", "ended"),), "the test ends the process")
TIME_IS_UP = Failure("time", (Fact("process", "time limit"),), "the time limit ends the test")
#: A line of pytest about an option that changes nothing in `parallel-conformance run`.
_HINT = "Use -v to get more diff"
#: Matches the address of an object or of memory, which each run changes.
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}|(?<![.\d])\d{12,}\b")
#: The number of frames that are kept at both ends of a long traceback.
_FIRST, _LAST = 100, 20

#: The failures of the examples that Hypothesis has drawn for the running test.
_examples: list[Failure] = []


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Store the failure of each example that Hypothesis draws for the test."""
    forget()
    _examples.clear()
    time_limit.start_example()
    if not clauses.clauses_of_test(item):
        return
    # The report of the setup has them, if the test ends the process.
    item.user_properties += [
        (str(ended.facts[0]), record.id)
        for record in item.stash.get(register.RECORDS, [])
        for ended in (PROCESS_ENDED, TIME_IS_UP)
        if ended.is_expected(record.expects)
    ]
    handle = getattr(getattr(item, "obj", None), "hypothesis", None)
    if handle is not None and not hasattr(handle.inner_test, "_is_observed"):
        handle.inner_test = _observed(handle.inner_test, item.path)


def _observed(test: Callable[..., Any], file: Path) -> Callable[..., Any]:
    """Return the test, which stores its failures. Hypothesis calls it for each example."""

    @functools.wraps(test)
    def observed(*args: Any, **kwargs: Any) -> Any:
        forget()
        time_limit.start_example()
        try:
            return test(*args, **kwargs)
        except HypothesisException:
            raise
        except (Exception, pytest.fail.Exception) as error:
            _examples.append(_failure_of(error, file))
            raise

    observed._is_observed = True  # type: ignore[attr-defined]
    return observed


def _failure_of(error: BaseException, file: Path) -> Failure:
    """Return the failure, also if the error cannot be shown."""
    try:
        return of_exception(error, file)
    except (Exception, SystemExit) as other:  # An object of the target raises it when it is shown.
        return _failure_of_hidden(error, other)


def _failure_of_hidden(error: BaseException, other: BaseException) -> Failure:
    name = type(error).__name__
    shown = f"cannot be shown: {type(other).__name__}"
    return Failure("error", (Fact("error", f"{name}: {shown}"),), f"{name}: the error {shown}")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Set the outcome of a test, and add its failure and its program to the report."""
    if not clauses.clauses_of_test(item):
        return (yield)
    show_first_failure(call)
    cut_tracebacks(call)
    error = None if call.excinfo is None else call.excinfo.value
    try:
        report = yield
        failure = _find_failure(item, call, report)
    except (Exception, SystemExit) as other:  # An object of the target raises it when it is shown.
        assert error is not None
        failure = _failure_of_hidden(error, other)
        report = _without_details(item, call, failure)
    if failure is not None:
        _compare_with_records(item, call, report, failure)
    return report


def _find_failure(
    item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport
) -> Failure | None:
    """Return the failure of a test; None if it passes, is not run, or is stale in the register."""
    error = None if call.excinfo is None else call.excinfo.value
    if error is None:
        records = item.stash.get(register.RECORDS, [])
        if report.when == "call" and records:
            names = " and ".join(record.name for record in records)
            text = (
                f"{names} names this test, but the test passes: {_describe_remedy(item, records)}"
            )
            report.outcome, report.longrepr = "failed", text
            return Failure("stale-record", (Fact("register", "stale"),), text)
        return None
    missing = missing_name(error)
    if missing is not None:
        if name_in(missing) not in item.config.stash.get(register.DECLARED, frozenset()):
            report.outcome, report.longrepr = "failed", missing
            return Failure("not-offered", (Fact("not offered", name_in(missing)),), missing)
        report.outcome = "skipped"
        report.longrepr = (str(item.path), 0, f"Skipped: not offered, as declared: {missing}")
        report.user_properties.append((verdicts.DECLARED, name_in(missing)))
        return None
    if report.skipped or skip_missing(call, report, target_of(item.config)):
        return None
    return _describe_failure(item, error)


def _describe_remedy(item: pytest.Item, records: Sequence[Divergence]) -> str:
    """Return how a register no longer expects the failure of a test that passes."""
    path = register_of(item.config)
    inherited = [name for record in records if record.file != str(path) for name in record.tests]
    ids = item.nodeid, register.without_parameters(item.nodeid)
    entries = [name for name in inherited if any(node_id.endswith(name) for node_id in ids)]
    if not entries:
        return "remove the test from the record"
    return f"the record is inherited, so add {entries[0]!r} to `repaired` of {path}"


def _compare_with_records(
    item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport, failure: Failure
) -> None:
    """Compare a failure with the records of its test, and add it to the report."""
    records = item.stash.get(register.RECORDS, [])
    expecting = [record.id for record in records if failure.is_expected(record.expects)]
    if not expecting and records and failure.kind not in ("not-offered", "stale-record"):
        names = " and ".join(record.name for record in records)
        expected = " or ".join(repr(fact) for record in records for fact in record.expects)
        text = f"{names} expects {expected}, but the failure is {', '.join(failure.fact_texts)}"
        report.longrepr = f"{report.longrepr}\n\n{text}"
        failure = replace(failure, text=f"{failure.text}\n{text}")
    known, chosen = clauses.of_run(item.config), item.config.getoption("--clause")
    add_failure(report, failure, known, next(iter(expecting), ""), chosen)
    if failure.kind != "stale-record":
        programs.add_program(item, call, report, failure, options_for_test(item.config))


def add_failure(
    report: pytest.TestReport,
    failure: Failure,
    known_clauses: Mapping[str, Clause],
    record: str = "",
    chosen: Collection[str] = (),
) -> None:
    """Add a failure and the clauses that it fails to the report of a test.

    Args:
        report: The report, with the clauses of the test.
        failure: The failure.
        known_clauses: The clauses of the suite by id.
        record: The id of the record that expects the failure, if there is one.
        chosen: The values of ``--clause``.
    """
    if record:
        report.outcome = "skipped"
        report.wasxfail = f"known: {record}"
    names = verdicts.clauses_in(report)
    selected = {
        name: clause
        for name, clause in known_clauses.items()
        if not chosen or name in names or any(map(clause.is_named_by, chosen))
    }
    violated = violated_by(failure, names, selected)
    report.user_properties += [(verdicts.FAILS, name) for name in violated]
    report.user_properties.append((verdicts.FAILURE, failure.dumps()))


def violated_by(
    found: Failure, names: Sequence[str], known_clauses: Mapping[str, Clause]
) -> list[str]:
    """Return the clauses that a failure of a test violates.

    A fact violates the clauses of the test that are about it; if there are none, the first clause
    of the same function that is about it, or of several functions of the chapter; or else the
    first clause of the test.

    Args:
        found: The failure.
        names: The clauses of the test.
        known_clauses: By id, the clauses of the test, and those that the run selects.
    """
    failing = (each for fact in found.facts for each in _about(fact, names, known_clauses))
    return list(dict.fromkeys(failing)) or [*names[:1]]


def _about(fact: Fact, names: Sequence[str], known_clauses: Mapping[str, Clause]) -> Sequence[str]:
    own = [name for name in names if known_clauses[name].is_about(fact)]
    if own or not names:
        return own
    first = known_clauses[names[0]]
    about = [
        each
        for each in known_clauses.values()
        if each.chapter == first.chapter and each.is_about(fact)
    ]
    of_function = [each.id for each in about if each.function == first.function]
    of_several = [each.id for each in about if each.is_of_several]
    return (of_function or of_several or names)[:1]


def _describe_failure(item: pytest.Item, error: BaseException) -> Failure:
    """Return the failure of a test, with the facts of all its failing examples."""
    failure = _failure_of(error, item.path)
    facts = [*failure.facts, *(fact for example in _examples for fact in example.facts)]
    drawn = programs.drawn_arguments(item, error)
    # The repr of a call is code; other arguments need their names.
    lines = [
        repr(value) if name == "call" else f"{name} = {value!r}" for name, value in drawn.items()
    ]
    if failure.call and failure.call not in map(repr, drawn.values()):
        lines = []  # The test has made its call from the drawn values.
    text = failure.text.replace(_HINT, "").rstrip() or type(error).__name__
    call = "\n".join(lines) or failure.call
    texts: dict[str, Any] = {
        name: _ADDRESS.sub("…", value) for name, value in (("text", text), ("call", call))
    }
    return replace(failure, facts=tuple(dict.fromkeys(facts)), **texts)


class EndedTests:
    """The plugin of a process that may start workers: it judges tests that end a worker."""

    def __init__(self) -> None:
        #: For each test that runs, the properties in the report of its setup: its clauses, and
        #: the records that expect that it ends the process.
        self._properties: dict[str, list[tuple[str, object]]] = {}
        #: The id of the run, which the workers know, too.
        self._run = ""

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Store the id of the run."""
        self._run = node.workerinput["testrunuid"]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Store the properties of a test after its setup."""
        if report.when == "setup":
            self._properties[report.nodeid] = report.user_properties
        elif report.when == "teardown":
            self._properties.pop(report.nodeid, None)

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(
        self, crashitem: str, report: pytest.TestReport, sched: Any
    ) -> None:
        """Add the clauses and the failure of the test to the report of pytest-xdist."""
        ended = PROCESS_ENDED
        if stack := time_limit.pop_stack(self._run, crashitem):
            ended = replace(TIME_IS_UP, text=f"{TIME_IS_UP.text}: {stack}")
        report.longrepr = ended.text
        report.user_properties += self._properties.get(crashitem, [])
        record = verdicts.property_of(report, str(ended.facts[0]))
        config = sched.config
        known = clauses.of_run(config)
        add_failure(report, ended, known, record, config.getoption("--clause"))
        # pytest-xdist does not count this failure for -x and --maxfail.
        config.pluginmanager.get_plugin("dsession")._handlefailures(report)


def pytest_configure(config: pytest.Config) -> None:
    """Register `EndedTests`, except in a worker."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(EndedTests(), "ended tests")


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


def show_first_failure(call: pytest.CallInfo[None]) -> None:
    """Show the first failure if Hypothesis reports that a repetition of the call differs."""
    error = None if call.excinfo is None else call.excinfo.value
    if isinstance(error, FlakyFailure):
        call.excinfo = pytest.ExceptionInfo.from_exception(error.exceptions[0])
    elif isinstance(error, Flaky):  # Hypothesis has lost the failure.
        text = "the calls of a failure have other results when they are repeated"
        failure = Failure("differs", (Fact("output", "not repeatable"),), text)
        if _examples:
            failure = replace(_examples[-1], text=f"{_examples[-1].text}\n{text}")
        call.excinfo = pytest.ExceptionInfo.from_exception(
            failed(failure).with_traceback(error.__traceback__)
        )


def _without_details(
    item: pytest.Item, call: pytest.CallInfo[None], failure: Failure
) -> pytest.TestReport:
    """Return the report of a failed test whose error cannot be shown."""

    def fail() -> None:
        raise AssertionError(failure.text) from None  # The error that is handled cannot be shown.

    shown = pytest.CallInfo.from_call(fail, call.when)
    return pytest.TestReport.from_item_and_call(item, shown)
