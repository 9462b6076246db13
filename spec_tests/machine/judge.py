"""Makes verdicts: an exception becomes a `Failure`, and a failure with a register a verdict.

A failure fails the clauses that `violated_by` returns. It does not decide the other clauses of its
test.

A test that uses a name that the target lacks is *not-offered*. If ``lacks`` of the register
declares the name, it is no error. A test that uses a feature or operator that the devices lack is
*not-run*, unless the target itself uses it. A failure whose facts a record expects is *known*.
"""

import functools
import re
import time
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis.errors import Flaky, FlakyFailure, HypothesisException

from spec_tests import failure
from spec_tests.failure import Fact, Failure
from spec_tests.machine import clauses, programs, verdicts
from spec_tests.machine.capabilities import skip_missing
from spec_tests.machine.clauses import Clause
from spec_tests.machine.options import options_for_test, target_of
from spec_tests.machine.register import Divergence
from spec_tests.machine.target import missing_name, name_in

#: The failures of a test that ends its process, by itself or at the time limit. Each is also a key
#: in the report of a test for the id of a record that expects it.
PROCESS_ENDED = Failure("ended", (Fact("process", "ended"),), "the test ends the process")
TIME_IS_UP = Failure("time", (Fact("process", "time limit"),), PROCESS_ENDED.text)
#: A line of pytest about an option that changes nothing in `parallel-conformance run`.
_HINT = "Use -v to get more diff"
#: Matches the address of an object or of memory, which each run changes.
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}|(?<![.\d])\d{12,}\b")
#: The number of frames that are kept at both ends of a long traceback.
_FIRST, _LAST = 100, 20

#: The records that expect the failure of a test, and the names that the register declares.
_RECORDS = pytest.StashKey[list[Divergence]]()
_DECLARED = pytest.StashKey[frozenset[str]]()
#: The failures of the examples that Hypothesis has drawn for the running test.
_examples: list[Failure] = []
#: When the running example has started, and the processor time of the process before it.
_started: list[float] = [0.0, 0.0]


def declare(config: pytest.Config, names: Iterable[str]) -> None:
    """Store the names in ``lacks`` of the register."""
    config.stash[_DECLARED] = frozenset(names)


def expect(
    items: Iterable[pytest.Item], records: list[Divergence], root: Path, *, whole: bool
) -> None:
    """Store, for each test, the records that expect its failure in the installed version.

    Args:
        items: The collected tests.
        records: The records of the register.
        root: The folder to which the node ids of records are relative.
        whole: Whether the whole suite was collected, so that each recorded parameter must exist.

    Raises:
        pytest.UsageError: A record names a test that does not exist. Parameters are checked only
            with ``whole``.
    """
    places: dict[str, list[int]] = {}
    for place, record in enumerate(records):
        for test in record.tests:
            if not is_defined(test, root):
                command = f"parallel-conformance draft --divergences {record.file}"
                raise _absent(record.name, test, f"`{command}` prints the register without it")
            places.setdefault(test, []).append(place)
    unused = {(record.name, test) for record in records for test in record.tests}
    for item in items:
        names = _node_ids(item, root)
        for place in sorted({place for name in names for place in places.get(name, ())}):
            record = records[place]
            unused -= {(record.name, name) for name in names}
            if record.applies:
                item.stash.setdefault(_RECORDS, []).append(record)
                item.user_properties += [
                    (str(each.facts[0]), record.id)
                    for each in (PROCESS_ENDED, TIME_IS_UP)
                    if record.explains(each)
                ]
    if whole and unused:
        raise _absent(*min(unused), "remove it from the record")


def is_defined(test: str, root: Path) -> bool:
    """Return whether the file of a test has its function. The file may not be collected."""
    file, _, name = without_parameters(test).partition("::")
    path = root / file
    return path.is_file() and f"def {name}(" in path.read_text(encoding="utf-8")


def _absent(record: str, test: str, remedy: str) -> pytest.UsageError:
    return pytest.UsageError(f"{record} names a test that does not exist: {test}; {remedy}")


def _node_ids(item: pytest.Item, root: Path) -> tuple[str, str]:
    """Return the node id of a test relative to ``root``, with and without its parameters."""
    # In an installed suite, the path in ``item.nodeid`` is relative to another folder.
    _, _, inside = item.nodeid.partition("::")
    name = f"{item.path.relative_to(root).as_posix()}::{inside}"
    return name, without_parameters(name)


def without_parameters(node_id: str) -> str:
    """Return the node id of a test for all its parameters."""
    return node_id.partition("[")[0]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Store the failure of each example that Hypothesis draws for the test."""
    failure.forget()
    _examples.clear()
    _start_example()
    if not clauses.clauses_of_test(item):
        return
    handle = getattr(getattr(item, "obj", None), "hypothesis", None)
    if handle is not None and not hasattr(handle.inner_test, "_is_observed"):
        handle.inner_test = _observed(handle.inner_test, item.path)


def _start_example() -> None:
    _started[:] = time.monotonic(), time.process_time()


def seconds_of_example() -> tuple[float, float]:
    """Return how long the running example of the test takes, and its processor time."""
    return time.monotonic() - _started[0], time.process_time() - _started[1]


def _observed(test: Callable[..., Any], file: Path) -> Callable[..., Any]:
    """Return the test, which stores its failures. Hypothesis calls it for each example."""

    @functools.wraps(test)
    def observed(*args: Any, **kwargs: Any) -> Any:
        failure.forget()
        _start_example()
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
        return failure.of_exception(error, file)
    except (Exception, SystemExit) as other:  # An object of the target raises it when it is shown.
        return _hidden(error, other)


def _hidden(error: BaseException, other: BaseException) -> Failure:
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
        found = _find_failure(item, call, report)
    except (Exception, SystemExit) as other:  # An object of the target raises it when it is shown.
        assert error is not None
        found = _hidden(error, other)
        report = _without_details(item, call, found)
    if found is not None:
        _judge(item, call, report, found)
    return report


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
        found = Failure("differs", (Fact("output", "not repeatable"),), text)
        if _examples:
            found = replace(_examples[-1], text=f"{_examples[-1].text}\n{text}")
        call.excinfo = pytest.ExceptionInfo.from_exception(
            failure.failed(found).with_traceback(error.__traceback__)
        )


def _without_details(
    item: pytest.Item, call: pytest.CallInfo[None], found: Failure
) -> pytest.TestReport:
    """Return the report of a failed test whose error cannot be shown."""

    def fail() -> None:
        raise AssertionError(found.text) from None  # The error that is handled cannot be shown.

    shown = pytest.CallInfo.from_call(fail, call.when)
    return pytest.TestReport.from_item_and_call(item, shown)


def _find_failure(
    item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport
) -> Failure | None:
    """Return the failure of a test; None if it passes, is not run, or is stale in the register."""
    error = None if call.excinfo is None else call.excinfo.value
    if error is None:
        records = item.stash.get(_RECORDS, [])
        if report.when == "call" and records:
            names = " and ".join(record.name for record in records)
            text = f"{names} names this test, but the test passes: remove the test from the record"
            report.outcome, report.longrepr = "failed", text
            return Failure("stale-record", (Fact("register", "stale"),), text)
        return None
    missing = missing_name(error)
    if missing is not None:
        if name_in(missing) not in item.config.stash.get(_DECLARED, frozenset()):
            report.outcome, report.longrepr = "failed", missing
            return Failure("not-offered", (Fact("not offered", name_in(missing)),), missing)
        report.outcome = "skipped"
        report.longrepr = (str(item.path), 0, f"Skipped: not offered, as declared: {missing}")
        report.user_properties.append((verdicts.DECLARED, name_in(missing)))
        return None
    if report.skipped or skip_missing(call, report, target_of(item.config)):
        return None
    return _describe(item, error)


def _judge(
    item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport, found: Failure
) -> None:
    """Compare a failure with the records of its test, and add it to the report."""
    records = item.stash.get(_RECORDS, [])
    known = next((record for record in records if record.explains(found)), None)
    if known is None and records and found.kind not in ("not-offered", "stale-record"):
        names = " and ".join(record.name for record in records)
        expected = " or ".join(repr(fact) for record in records for fact in record.expects)
        text = f"{names} expects {expected}, but the failure is {', '.join(found.expected)}"
        report.longrepr = f"{report.longrepr}\n\n{text}"
        found = replace(found, text=f"{found.text}\n{text}")
    chosen = item.config.getoption("--clause")
    add_failure(report, found, known.id if known else "", chosen)
    if found.kind != "stale-record":
        programs.add(item, call, report, found, options_for_test(item.config))


def add_failure(
    report: pytest.TestReport, found: Failure, record: str = "", chosen: Collection[str] = ()
) -> None:
    """Add a failure and the clauses that it fails to the report of a test.

    Args:
        report: The report, with the clauses of the test.
        found: The failure.
        record: The id of the record that expects the failure, if there is one.
        chosen: The values of ``--clause``.
    """
    if record:
        report.outcome = "skipped"
        report.wasxfail = f"known: {record}"
    names = verdicts.clauses_in(report)
    known = {
        name: each
        for name, each in clauses.load().items()
        if not chosen or name in names or any(map(each.is_named_by, chosen))
    }
    failing = violated_by(found, names, known)
    report.user_properties += [(verdicts.FAILS, each) for each in failing]
    report.user_properties.append((verdicts.FAILURE, found.dumps()))


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


def _describe(item: pytest.Item, error: BaseException) -> Failure:
    """Return the failure of a test, with the facts of all its failing examples."""
    found = _failure_of(error, item.path)
    facts = [*found.facts, *(fact for each in _examples for fact in each.facts)]
    drawn = programs.drawn_arguments(item, error)
    # The repr of a call is code; other arguments need their names.
    lines = [
        repr(each) if name == "call" else f"{name} = {each!r}" for name, each in drawn.items()
    ]
    text = found.text.replace(_HINT, "").rstrip() or type(error).__name__
    call = "\n".join(lines) or found.call
    texts: dict[str, Any] = {
        name: _ADDRESS.sub("…", each) for name, each in (("text", text), ("call", call))
    }
    return replace(found, facts=tuple(dict.fromkeys(facts)), **texts)
