"""A failed test in words: what differed, and the smallest call that shows it."""

import inspect

import pytest

from spec_tests.harness.environment.target import NotOffered, lacking

__all__ = ["describe", "of_skip"]


def of_skip(item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport) -> None:
    """Make a failure, or the expected one, of a skip that says what the target lacks."""
    if call.excinfo is None or not isinstance(call.excinfo.value, NotOffered):
        return
    report.longrepr = str(call.excinfo.value)
    expected = item.get_closest_marker("xfail")
    if expected is None:
        report.outcome = "failed"
    else:
        report.wasxfail = expected.kwargs["reason"]


def describe(item: pytest.Item, call: pytest.CallInfo[None]) -> list[tuple[str, str]]:
    """The properties ``difference``, ``failure``, ``call`` of a failed test, or ``not-offered``.

    They are text, so that they travel between processes with the report. A ``failure`` is what the
    record of a known difference would say: the exception's class and the first line of its text.
    """
    if call.excinfo is None:
        return [("difference", "it passes, but a register says that it fails")]
    error = call.excinfo.value
    text = str(error) or type(error).__name__
    if not isinstance(error, AssertionError | pytest.fail.Exception):
        text = f"{type(error).__name__}: {error}"
    missing = lacking(error)
    if missing is not None:
        return [("not-offered", missing)]
    drawn = _drawn(item, call.excinfo)
    (first, *_) = str(error).splitlines() or [""]
    failure = ("failure", f"{type(error).__name__}: {first}")
    return [("difference", text), failure, *(("call", each) for each in drawn)]


def _drawn(item: pytest.Item, excinfo: pytest.ExceptionInfo[BaseException]) -> list[str]:
    """What Hypothesis gave to the test, as it reads in the frame that failed."""
    function = getattr(getattr(item, "obj", None), "hypothesis", None)
    if function is None:
        return []
    code = inspect.unwrap(function.inner_test).__code__
    frames = [entry.frame for entry in excinfo.traceback if entry.frame.code.raw is code]
    names = code.co_varnames[: code.co_argcount]
    fixtures = getattr(item, "fixturenames", ())
    known = frames[-1].f_locals if frames else {}
    return [repr(known[name]) for name in names if name in known and name not in fixtures]
