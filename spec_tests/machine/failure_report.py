"""Describes a failed test: the difference, and the smallest failing call."""

import inspect
from typing import Any

import pytest
from hypothesis.errors import Flaky, FlakyFailure

from spec_tests.machine import causes, known_failures
from spec_tests.machine.target import missing_name

#: A line of pytest about an option that changes nothing in `parallel-conformance run`.
_HINT = "Use -v to get more diff"
#: The number of frames that are kept at both ends of a long traceback.
_FIRST, _LAST = 100, 20


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
        found = AssertionError(text).with_traceback(error.__traceback__)
        call.excinfo = pytest.ExceptionInfo.from_exception(found)


def describe(item: pytest.Item, call: pytest.CallInfo[None]) -> list[tuple[str, str]]:
    """Return pairs of key and text that describe a failure, for the report of the test.

    The keys are ``difference`` (the text of the exception), ``failure`` (its class and first line,
    as in ``failures`` of a register), ``differs`` (as in ``differences`` of a register) and
    ``call`` (a line for each drawn argument, or the attribute ``call`` of the exception). If the
    target lacks a name, the only key is ``not-offered``.
    """
    if call.excinfo is None:
        return [("difference", known_failures.stale_text(item))]
    error = call.excinfo.value
    text = str(error) or type(error).__name__
    if not isinstance(error, AssertionError | pytest.fail.Exception):
        text = f"{type(error).__name__}: {error}"
    text = text.replace(_HINT, "").rstrip()
    missing = missing_name(error)
    if missing is not None:
        return [("not-offered", missing)]
    (first, *_) = str(error).splitlines() or [""]
    failure = ("failure", f"{type(error).__name__}: {first}")
    drawn = drawn_arguments(item, call.excinfo).items()
    # The repr of a call is code; other arguments need their names.
    arguments = [repr(each) if name == "call" else f"{name} = {each!r}" for name, each in drawn]
    arguments += [error.call] if hasattr(error, "call") else []
    differs = ("differs", causes.fingerprint(item, call.excinfo))
    return [("difference", text), failure, differs, *(("call", each) for each in arguments)]


def drawn_arguments(
    item: pytest.Item, excinfo: pytest.ExceptionInfo[BaseException]
) -> dict[str, Any]:
    """Return the arguments that Hypothesis drew for the failing call, by name."""
    function = getattr(getattr(item, "obj", None), "hypothesis", None)
    if function is None:
        return {}
    code = inspect.unwrap(function.inner_test).__code__
    frames = [entry.frame for entry in excinfo.traceback if entry.frame.code.raw is code]
    names = code.co_varnames[: code.co_argcount]
    fixtures = getattr(item, "fixturenames", ())
    known = frames[-1].f_locals if frames else {}
    return {name: known[name] for name in names if name in known and name not in fixtures}
