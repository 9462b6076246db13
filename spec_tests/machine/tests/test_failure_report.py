"""Descriptions of failures."""

import traceback

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spec_tests.machine import failure_report


def _recurse():
    _recurse()


def _fail():
    try:
        _recurse()
    except RecursionError as error:
        raise ValueError("after the recursion") from error


def test_tracebacks_of_an_error_and_its_cause_keep_their_ends_only():
    call = pytest.CallInfo.from_call(_fail, "call")
    cause = call.excinfo.value.__cause__
    assert len(list(traceback.walk_tb(cause.__traceback__))) > 500
    failure_report.cut_tracebacks(call)
    names = [frame.name for frame in traceback.extract_tb(cause.__traceback__)]
    assert names == ["_fail", *["_recurse"] * 119]


def test_a_failure_that_a_repetition_changes_is_shown():
    calls = []

    @settings(database=None)
    @given(st.integers())
    def fail_once(number):
        calls.append(number)
        assert len(calls) > 1, "the first call"

    call = pytest.CallInfo.from_call(fail_once, "call")
    failure_report.show_first_failure(call)
    assert str(call.excinfo.value).startswith("the first call")
