"""Descriptions of failures."""

import json
import re
import traceback
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from hypothesis.errors import FlakyFailure

from spec_tests import failure
from spec_tests.cli import diff
from spec_tests.failure import Fact, Failure
from spec_tests.machine import clauses, input_files, judge, programs, verdicts
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


def test_a_flaky_failure_that_has_lost_its_traceback_is_shown():
    def fail():
        raise FlakyFailure("flaky", [AssertionError("the first failure")])

    call = pytest.CallInfo.from_call(fail, "call")
    judge.show_first_failure(call, [])
    assert str(call.excinfo.value) == "the first failure"


def test_the_reason_of_a_skipped_test_has_no_notes_of_hypothesis():
    place = ("a.py", 1, "Skipped: not-run: the devices lack sparse\nFailing explicit example: (")
    keywords = {"when": "call", "user_properties": [(verdicts.CLAUSE, "comm.scatter.slices")]}
    report = pytest.TestReport("a.py::test", place, {}, "skipped", place, **keywords)
    assert [test.reason for test in verdicts.verdicts_of(report)] == ["the devices lack sparse"]


def _broadcast(target, count):
    assert count
    for device in sorted(range(count)):
        target.comm.broadcast(torch.ones(count), [device])
    target.comm.gather([])


def _apply(target):
    function = target.functions.Scatter
    function.apply([0], None, 0, torch.ones(2))


@pytest.mark.parametrize(
    ("test", "call"),
    [
        (_broadcast, "target.comm.broadcast(torch.ones(count), [device])"),
        (_apply, "function.apply([0], None, 0, torch.ones(2))"),
        (_recurse, ""),
    ],
)
def test_the_call_of_a_test_is_the_first_one_of_the_target(test, call):
    assert programs.call_of(SimpleNamespace(obj=test)) == call


def test_the_place_of_an_error_is_the_last_line_of_the_package():
    with pytest.raises(json.JSONDecodeError) as caught:
        json.loads("}")
    assert re.fullmatch(r"json/decoder\.py:\d+", failure.line_in_package(caught.value, "json"))
    assert failure.line_in_package(caught.value, "js") == ""


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
    assert (found.kind, found.fact_texts) == ("error", [f"error: ValueError: {said}"])


@pytest.mark.parametrize(
    ("text", "entry", "is_expected"),
    [
        ("input 1 has invalid size: got 4x1", "input 1 has invalid size", True),
        ("input 1 has invalid size: got 4x1", "has invalid size: got 4x1", True),
        ("input 1 has invalid size: got 4x1", "invalid", True),
        ("input 1 has invalid size: got 4x1", "input 1 has invalid shape", False),
        ("3", "3", True),
        ("row", "3", False),
    ],
)
def test_a_record_expects_an_error_by_a_part_of_its_printed_text(text, entry, is_expected):
    found = failure.of_exception(ValueError(text))
    assert found.is_expected([f"error: ValueError: {entry}"]) is is_expected
    assert not found.is_expected([f"error: KeyError: {entry}"])


def test_no_record_expects_a_failure_without_facts():
    assert not Failure("error", (), "text").is_expected(["error: ValueError: text"])


def test_the_fact_of_an_assertion_is_its_expression():
    def check(found):
        assert found == [1, 2], (
            "a text that no record depends on",
        )  # fmt: skip

    def refuse():
        with nullcontext(), pytest.raises(KeyError):
            pass

    for function, kind, fact in (
        (lambda: check([2]), "assert", "assert: found == [1, 2]"),
        (refuse, "accepted", "assert: nullcontext(), pytest.raises(KeyError)"),
    ):
        call = pytest.CallInfo.from_call(function, "call", reraise=())
        found = failure.of_exception(call.excinfo.value)
        assert (found.kind, found.fact_texts) == (kind, [fact])


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


@pytest.mark.parametrize(
    ("kind", "place", "name", "count"),
    [
        ("differs", "output.hidden", "values", 2),
        ("differs", "outputs", "values", 1),  # a named part of the results
        ("differs", "output", "value", 3),
        ("error", "output", "values", 1),
        ("error", "error", "RecursionError: maximum recursion depth exceeded", 2),
        ("assert", "output", "values", 3),
    ],
)
def test_only_errors_are_one_cause_in_several_parts_of_the_specification(kind, place, name, count):
    found = Failure(kind, (Fact(place, name),), "text")
    names = ("comm.gather.joined", "comm.scatter.slices", "comm.scatter.zero-sizes")
    assert len({found.group(name) for name in names}) == count


#: Clauses by id, with the facts that they are about.
FACTS = {
    "comm.scatter.first": (),
    "comm.scatter.values": ("output: values",),
    "comm.scatter.strides": ("strides",),
    "comm.scatter.gradient": ("gradient",),
    "comm.gather.other": (),
    "comm.order.host": ("memory",),
    "comm.order.freed": ("memory: early free",),
    "divergences.CO-1.first": (),
    "divergences.CO-1.strides": ("strides",),
    "divergences.CO-2.device": ("device",),
    "functions.gather.first": (),
}
VALUES, STRIDES, DEVICE = (Fact("output", each) for each in ("values", "strides", "device"))
ZERO, RACE = Fact("gradient", "values (zero)"), Fact("memory", "race")
#: For each case: the ends of the ids of the clauses of a test, the facts that differ, and the
#: clauses that fail.
OF_TEST = {
    "named": ("scatter.first scatter.strides", [STRIDES], "scatter.strides"),
    "with-a-detail": ("scatter.values", [Fact("output", "values (zero)")], "scatter.values"),
    "several": ("scatter.first", [ZERO, VALUES], "scatter.gradient scatter.values"),
    "of-no-clause": ("scatter.first scatter.values", [DEVICE], "scatter.first"),
    "without-facts": ("scatter.first scatter.values", [], "scatter.first"),
    "of-the-function": ("scatter.first", [STRIDES, DEVICE], "scatter.strides scatter.first"),
    "of-another-function": ("gather.other", [STRIDES], "gather.other"),
    "of-several-functions": ("gather.other", [RACE], "order.host"),
    "race": ("order.host order.freed", [RACE], "order.host"),
    "of-the-divergence": ("CO-1.first", [STRIDES, DEVICE], "CO-1.strides CO-1.first"),
    "of-several-functions-of-its-chapter": ("CO-1.first", [RACE], "order.host"),
    "of-another-chapter": ("gather.first", [RACE], "gather.first"),
    "its-own-before-the-function": ("scatter.gradient", [ZERO], "scatter.gradient"),
}


@pytest.fixture
def specification():
    """The clauses of `FACTS`. Those of divergences are in the chapter comm."""
    return {
        name: clauses.Clause(
            name, "says", "law", facts=facts, folder="comm" if "-" in name else ""
        )
        for name, facts in FACTS.items()
    }


@pytest.mark.parametrize(("of_test", "facts", "failing"), OF_TEST.values(), ids=OF_TEST)
def test_a_failure_violates_the_clauses_about_its_facts(specification, of_test, facts, failing):
    names, expected = (
        [next(each for each in FACTS if each.endswith(name)) for name in text.split()]
        for text in (of_test, failing)
    )
    assert (
        judge.violated_by(Failure("differs", tuple(facts), ""), names, specification) == expected
    )


def _report(names, failure, specification, chosen=()):
    """Return the report of a failed test of the clauses ``names``, run with ``--clause``."""
    properties = [(verdicts.CLAUSE, name) for name in names]
    report = pytest.TestReport(
        "test_it.py::test_it", ("", 0, ""), {}, "failed", "", "call", user_properties=properties
    )
    judge.add_failure(report, failure, specification, chosen=chosen)
    return report


def test_a_failure_fails_no_clause_that_the_run_leaves_out(specification):
    failed = Failure("differs", (STRIDES,), "other strides")
    values, strides = "comm.scatter.values", "comm.scatter.strides"
    for chosen, fails in (
        ([values], values),
        ([values, strides], strides),
        (["comm.sc"], strides),
    ):
        (test, *_) = verdicts.verdicts_of(_report([values], failed, specification, chosen))
        assert test.clause == fails


def test_the_evidence_of_a_clause_does_not_depend_on_the_order_of_tests():
    tests = [
        TestVerdict(name, "fail", "comm.scatter.slices", failure=Failure("error", (fact,), "text"))
        for name, fact in (("a.py::one", Fact("output", "values")), ("a.py::two", ZERO))
    ]
    assert verdicts.find_evidence(tests) == verdicts.find_evidence(reversed(tests))


def test_diff_compares_the_failures_of_all_tests_of_a_clause():
    def run(second):
        facts = {"a.py::one": Fact("output", "values"), "a.py::two": second}
        tests = [
            TestVerdict(name, "fail", "comm.scatter.slices", failure=Failure("error", (fact,), ""))
            for name, fact in facts.items()
        ]
        return verdicts.find_evidence(tests)

    ((kind, *_),) = diff.changes(run(ZERO), run(RACE))
    assert kind == diff.OTHERWISE
    assert diff.changes(run(ZERO), run(ZERO)) == []


def test_the_other_clauses_of_a_failed_test_are_not_decided(specification, tmp_path):
    names = ("comm.scatter.first", "comm.scatter.values")
    failed = Failure("differs", (STRIDES,), "other strides")
    tests = verdicts.verdicts_of(_report(names, failed, specification))
    tests.append(TestVerdict("another", "pass", "comm.scatter.first"))
    old = samples.write_verdicts(tmp_path / "old.jsonl", dict.fromkeys(names, "pass"))
    new = samples.write_verdicts(tmp_path / "new.jsonl", {})
    new.write_text(new.read_text() + "\n".join(test.dumps() for test in tests))
    for path in (new, samples.publish_file(new, tmp_path)):
        found = runs.read(path)[1]
        assert found["comm.scatter.first"].reason.endswith("comm.scatter.strides")
        assert diff.changes(runs.read(old)[1], found) == [
            ("regression", "comm.scatter.first", "pass", "not-run"),
            ("regression", "comm.scatter.values", "pass", "not-run"),
            ("appeared", "comm.scatter.strides", "not-run", "fail"),
        ]


def test_a_record_out_of_date_is_the_reason_of_the_other_clauses_of_its_test(specification):
    stale = Failure("stale-record", (Fact("register", "stale"),), "remove it")
    names = ("comm.scatter.first", "comm.scatter.values")
    _, other = verdicts.verdicts_of(_report(names, stale, specification))
    assert other.clause == "comm.scatter.values"
    assert other.reason == "the record of its tests is out of date: comm.scatter.first"
