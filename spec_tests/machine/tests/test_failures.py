"""Descriptions of failures."""

import json
import traceback

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spec_tests import failure
from spec_tests.failure import Fact, Failure
from spec_tests.machine import clauses, input_files, judge


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
    judge.cut_tracebacks(call)
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
    judge.show_first_failure(call)
    assert str(call.excinfo.value).startswith("the first call")


def test_the_fact_of_an_endless_recursion_has_the_function_and_no_place_in_the_stack():
    call = pytest.CallInfo.from_call(_recurse, "call")
    fact = "error: RecursionError: maximum recursion depth exceeded"
    assert failure.of_exception(call.excinfo.value).expected == [f"{fact} in _recurse"]
    text = "Traceback:\nRecursionError: maximum recursion depth exceeded in comparison"
    assert failure.of_exception(RecursionError(text)).expected == [fact]


#: For each error's text: what its fact says.
ERRORS = {
    "chunk expects at least 2 chunks": "chunk expects at least",
    "3 sizes for 2 of the devices": "of the devices",
    "Caught E in replica 1.\nTraceback:\n  x\nKeyError: row 3 of 4": "KeyError: row",
    "Expected [1, 2] elements": "Expected",
    f"long {'word ' * 40}": f"long {'word ' * 14}word",
}


@pytest.mark.parametrize(("text", "said"), ERRORS.items())
def test_the_fact_of_an_error_has_no_drawn_numbers(text, said):
    found = failure.of_exception(ValueError(text))
    assert (found.kind, found.expected) == ("error", [f"error: ValueError: {said}"])


def test_the_fact_of_an_assertion_is_its_expression():
    def check(found):
        assert found == [1, 2], (
            "a text that no record depends on",
        )  # fmt: skip

    def refuse():
        with pytest.raises(KeyError):
            pass

    call = pytest.CallInfo.from_call(lambda: check([2]), "call")
    found = failure.of_exception(call.excinfo.value)
    assert (found.kind, found.expected) == ("assert", ["assert: found == [1, 2]"])
    call = pytest.CallInfo.from_call(refuse, "call", reraise=())
    found = failure.of_exception(call.excinfo.value)
    assert (found.kind, found.expected) == ("accepted", ["assert: pytest.raises(KeyError)"])


def test_a_failure_returns_from_a_file_with_lone_surrogates_and_without_a_long_middle():
    facts = Fact("output", "values"), Fact("error", "KeyError: \udc80")
    found = Failure("differs", facts, f"\udc80 {'x' * 9999} end", "KeyError", "oracle", "f(1)")
    text = found.dumps()
    assert text.isascii()
    read = input_files.convert(json.loads(text), Failure, "file")
    assert read.key == found.key
    assert (read.error, read.baseline, read.call) == ("KeyError", "oracle", "f(1)")
    assert len(read.text) < 2000
    assert read.text.endswith("end")


@pytest.mark.parametrize(("kind", "count"), [("differs", 2), ("error", 1), ("assert", 3)])
def test_only_errors_are_one_cause_in_several_parts_of_the_specification(kind, count):
    found = Failure(kind, (Fact("output", "values"),), "text")
    names = ("comm.gather.joined", "comm.scatter.slices", "comm.scatter.zero-sizes")
    assert len({found.group(name) for name in names}) == count


def _clause(name, *facts):
    return clauses.Clause(name, "says", "law", facts=facts)


#: Clauses by id, with the facts that they are about.
FACTS = {
    "a.b.first": (),
    "a.b.values": ("values",),
    "a.b.strides": ("strides",),
    "a.b.gradient": ("gradient",),
    "a.b.input": ("input",),
    "a.c.aliasing": ("aliasing",),
}
#: For each case: the clauses of a test, the facts that differ, and the clauses that fail.
FAILED = {
    "named": ("first strides", [Fact("output", "strides")], "strides"),
    "with-a-detail": ("first values", [Fact("output", "values (zero)")], "values"),
    "place": ("first gradient", [Fact("gradient", "dtype")], "gradient"),
    "several": (
        "first values gradient",
        [Fact("gradient", "values"), Fact("output", "values")],
        "values gradient",
    ),
    "of-no-clause": ("first values", [Fact("output", "device")], "first"),
    "none": ("first values", [], "first"),
    "of-another-test": ("first", [Fact("input", "values")], "input"),
    "of-both": ("values", [Fact("output", "values"), Fact("output", "strides")], "values strides"),
    "of-another-function": ("first", [Fact("output", "aliasing")], "first"),
    "not-shared": ("first", [Fact("output", "values")], "first"),
}


@pytest.mark.parametrize(("of_test", "facts", "failing"), FAILED.values(), ids=FAILED)
def test_a_failed_test_fails_the_clauses_about_its_facts(of_test, facts, failing):
    known = {name: _clause(name, *about) for name, about in FACTS.items()}
    found = clauses.failed_by(facts, [f"a.b.{name}" for name in of_test.split()], known)
    assert {*found} == {f"a.b.{name}" for name in failing.split()}
