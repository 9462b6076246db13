"""Descriptions of failures."""

import json
import traceback

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spec_tests import failure
from spec_tests.cli import diff
from spec_tests.failure import Fact, Failure
from spec_tests.machine import attribution, clauses, input_files, judge, verdicts
from spec_tests.machine.verdicts import TestVerdict
from spec_tests.reporting import runs
from spec_tests.reporting.tests import samples


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


#: For each error's text: what its fact says.
ERRORS = {
    "chunk expects at least 2 chunks": "chunk expects at least",
    "3 sizes for 2 of the devices": "of the devices",
    "Caught E in replica 1.\nTraceback:\n  x\nKeyError: row 3 of 4": "KeyError: row",
    "Expected [1, 2] elements": "Expected",
    "maximum recursion depth exceeded in comparison": "maximum recursion depth exceeded",
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
    found = Failure("differs", facts, f"\udc80 {'x' * 9999} end", "KeyError", "f(1)")
    text = found.dumps()
    assert text.isascii()
    read = input_files.convert(json.loads(text), Failure, "file")
    assert read.key == found.key
    assert (read.error, read.call) == ("KeyError", "f(1)")
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
    "comm.b.first": (),
    "comm.b.values": ("values",),
    "comm.b.strides": ("strides",),
    "comm.b.gradient": ("gradient",),
    "comm.b.last": (),
    "comm.c.other": (),
    "comm.order.host": (),
}
VALUES, STRIDES, DEVICE = (Fact("output", each) for each in ("values", "strides", "device"))
ZERO = Fact("gradient", "values (zero)")
#: For each case: the clauses of a test, the facts that differ, and the clauses that fail.
OF_TEST = {
    "named": ("first strides", [STRIDES], "strides"),
    "with-a-detail": ("first values", [Fact("output", "values (zero)")], "values"),
    "place": ("first gradient", [Fact("gradient", "dtype")], "gradient"),
    "several": ("first values gradient", [ZERO, VALUES], "values gradient"),
    "of-no-clause": ("first values", [DEVICE], "first"),
    "none": ("first values", [], "first"),
}
#: For each case: the facts in which a test of each clause fails, and the clauses that fail.
OF_RUN = {
    "the-first": ({"b.first": [DEVICE], "b.last": [DEVICE]}, "b.first"),
    "the-one-that-names-it": ({"b.first": [STRIDES], "b.strides": [STRIDES]}, "b.strides"),
    "all-that-name-it": ({"b.values": [ZERO], "b.gradient": [ZERO]}, "b.values b.gradient"),
    "another-fact": ({"b.first": [DEVICE], "b.last": [DEVICE, VALUES]}, "b.first b.last"),
    "other-facts": ({"b.gradient": [DEVICE], "b.strides": [STRIDES]}, "b.strides"),
    "other-facts-alone": ({"b.gradient": [DEVICE], "b.first": [VALUES]}, "b.gradient b.first"),
    "without-facts": ({"b.first": [], "b.last": []}, "b.first b.last"),
    "other-function": ({"b.first": [DEVICE], "c.other": [DEVICE]}, "b.first c.other"),
    "composed": ({"c.other": [STRIDES], "order.host": [DEVICE]}, "c.other order.host"),
    "composed-of-the-one-that-names-it": (
        {"b.strides": [STRIDES], "order.host": [DEVICE]},
        "b.strides",
    ),
    "of-several-functions": ({"c.other": [DEVICE], "order.host": [DEVICE]}, "c.other"),
}


@pytest.fixture
def known(monkeypatch):
    """The clauses of `FACTS`."""
    found = {
        name: clauses.Clause(name, "says", "law", facts=facts) for name, facts in FACTS.items()
    }
    monkeypatch.setattr(clauses, "load", lambda: found)
    return found


@pytest.mark.parametrize(("of_test", "facts", "failing"), OF_TEST.values(), ids=OF_TEST)
def test_a_failed_test_fails_the_clauses_about_its_facts(known, of_test, facts, failing):
    names = [f"comm.b.{name}" for name in of_test.split()]
    found = attribution.failed_by(facts, names, known)
    assert {*found} == {f"comm.b.{name}" for name in failing.split()}


@pytest.mark.parametrize(("facts", "failing"), OF_RUN.values(), ids=OF_RUN)
def test_a_fact_of_several_clauses_fails_the_one_that_it_is_about(known, facts, failing):
    tests = [
        TestVerdict(f"test_{name}", "fail", f"comm.{name}", failure=Failure("differs", each, ""))
        for name, each in facts.items()
    ]
    assert verdicts.by_clause(tests) == {
        f"comm.{name}": "fail" if name in failing.split() else "not-run" for name in sorted(facts)
    }


def test_a_failed_clause_that_others_explain_does_not_pass(known, tmp_path):
    failed = Failure("differs", (DEVICE,), "output is on sim:0")
    tests = [
        TestVerdict("one", "fail", "comm.b.first", failure=failed),
        TestVerdict("two", "fail", "comm.b.last", failure=failed),
        TestVerdict("three", "pass", "comm.b.last"),
    ]
    names = ("comm.b.first", "comm.b.last")
    old = samples.write_verdicts(tmp_path / "old.jsonl", dict.fromkeys(names, "pass"))
    new = samples.write_verdicts(tmp_path / "new.jsonl", {})
    new.write_text(new.read_text() + "\n".join(test.dumps() for test in tests))
    for path in (new, samples.publish_file(new, tmp_path)):
        found = runs.read(path)[1]
        assert found["comm.b.last"].reason == "its tests fail as those of comm.b.first"
        assert diff.changes(runs.read(old)[1], found) == [
            ("regression", "comm.b.first", "pass", "fail"),
            ("regression", "comm.b.last", "pass", "not-run"),
        ]


def test_a_stale_record_explains_no_other_one(known):
    stale = Failure("stale-record", (Fact("register", "stale"),), "")
    tests = [
        TestVerdict(name, "fail", f"comm.b.{name}", failure=stale) for name in ("first", "last")
    ]
    assert {*verdicts.by_clause(tests).values()} == {"fail"}
