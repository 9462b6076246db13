"""Keeps a target from ending the run: its errors become failures of the test that meets them."""

import os
import signal
import sys
import threading
import unittest
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from spec_tests.harness.environment.target import NotOffered
from spec_tests.harness.environment.topology import NOT_RUN

#: Errors that end a run or decide a verdict, wherever they are raised.
_CONTROL = (pytest.exit.Exception, pytest.xfail.Exception, KeyboardInterrupt)
_SKIPS = (pytest.skip.Exception, unittest.SkipTest)
#: The modules that may end the process: the time limit of tests, and the handler of Ctrl-C.
_ENDS_PROCESS = (
    "pytest_timeout",
    "spec_tests.harness.pytest_plugin.time_limit",
    "spec_tests.cli.progress",
)
#: Seconds that a process has to end by itself.
_END_LIMIT = 5


class ContainedError(Exception):
    """The error of a test in place of one that would end the run, or that cannot be shown."""


def as_failure(error: BaseException) -> BaseException:
    """Return an error that pytest reports: the given one, or a `ContainedError` in its place."""
    try:
        if _is_reportable(error):
            return error
        text = f"{error}".encode(errors="backslashreplace").decode()
    except BaseException as other:  # The methods of an error may raise any other one.
        text = f"its text cannot be read: {type(other).__name__}"
    found = ContainedError(f"the test raises {type(error).__name__}: {text}")
    return found.with_traceback(error.__traceback__)


def _is_reportable(error: BaseException) -> bool:
    """Return whether pytest can show an error, and no target decides a verdict with it."""
    kind = type(error)
    if issubclass(kind, _SKIPS):
        return kind is NotOffered or str(error).startswith(NOT_RUN)
    if issubclass(kind, _CONTROL):
        # Only with Python's own handler can it be Ctrl-C of the user.
        is_users = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        return kind is KeyboardInterrupt and is_users
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        f"{link.__class__}{link}{link!r}".encode()
        link = link.__cause__ or link.__context__
    return True


@contextmanager
def without_exit() -> Iterator[None]:
    """Make ``os._exit`` raise SystemExit, so that the target cannot end this process with 0."""
    process, end = os.getpid(), os._exit

    def refuse(status: int) -> None:
        caller = sys._getframe(1).f_globals.get("__name__")
        if os.getpid() == process and caller not in _ENDS_PROCESS:
            raise SystemExit(f"os._exit({status})")
        end(status)

    os._exit = refuse  # type: ignore[assignment]  # it may return in a test
    try:
        yield
    finally:
        os._exit = end


def end_soon(status: int) -> None:
    """End this process with ``status`` in a few seconds, although a thread may never end."""
    timer = threading.Timer(_END_LIMIT, os._exit, (status,))
    timer.daemon = True
    timer.start()


def report_without_details(
    item: pytest.Item, call: pytest.CallInfo[None], other: BaseException
) -> pytest.TestReport:
    """Return the report of a failed test whose error raised ``other`` when it was shown."""
    error = ContainedError(f"the failure cannot be shown: {type(other).__name__}")

    def fail() -> None:
        raise error from None  # The error that is handled cannot be shown.

    shown = pytest.CallInfo.from_call(fail, call.when)
    report = pytest.TestReport.from_item_and_call(item, shown)
    report.user_properties.append(("difference", f"{type(error).__name__}: {error}"))
    return report


class _KeptOpen:
    """A standard stream that `close` does not close."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.was_closed = False

    def close(self) -> None:
        self.was_closed = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def contained() -> Iterator[list[str]]:
    """Restore at the end of the block what pytest needs.

    Yields:
        A list, to which the names of closed streams are added at the end.
    """
    limit, folder = sys.getrecursionlimit(), os.getcwd()
    hooks = sys.excepthook, threading.excepthook
    streams = sys.stdout, sys.stderr
    copies = [(os.dup(number), number) for number in (1, 2)]
    kept = [_KeptOpen(stream) for stream in streams]
    sys.stdout, sys.stderr = kept
    closed: list[str] = []
    try:
        with without_exit():
            yield closed
    finally:
        sys.setrecursionlimit(limit)
        sys.excepthook, threading.excepthook = hooks
        sys.stdout, sys.stderr = streams
        os.chdir(folder)
        for stream, (copy, number) in zip(kept, copies, strict=True):
            if stream.was_closed or not _is_open(number):
                closed.append(f"standard stream {number}")
            os.dup2(copy, number)
            os.close(copy)


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
