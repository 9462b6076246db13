"""The conclusion of a run: the sentence at its end."""

import pytest

from spec_tests.failure import Failure
from spec_tests.machine import clauses, register
from spec_tests.machine.conclusion import AS_REFERENCE, conclude, summary_lines
from spec_tests.machine.verdicts import Evidence

SPECIFICATION = clauses.load()
PASSED = dict.fromkeys(SPECIFICATION, "pass")
TITLE = f"suite {clauses.VERSION}"
ONE = "comm.scatter.slices"
ABOUT_TARGET = [each.id for each in SPECIFICATION.values() if each.is_about_target]
ALL = len(ABOUT_TARGET)
VIOLATED = register.violated_by_reference()
#: More than a tenth of the clauses about the target.
TENTH = dict.fromkeys(ABOUT_TARGET[: ALL // 10 + 1], "not-run")


#: For each case: verdicts that differ from a run without failures, and the beginning of the claim.
CLAIMS = {
    "passed": ({}, f"conforms to {TITLE}: {ALL} of {ALL} decided, {len(SPECIFICATION)} clauses"),
    "devices-fail": ({"devices.copies.values": "fail"}, f"conforms to {TITLE}: "),
    "not-run": ({ONE: "not-run"}, f"conforms to {TITLE}: {ALL - 1} of {ALL} decided, "),
    "tenth": (TENTH, f"{TITLE} is not decided: {ALL - len(TENTH)} of {ALL} decided, "),
    "reference": (dict.fromkeys(VIOLATED, "known"), f"as torch.nn.parallel in {TITLE}: {ALL} of "),
    "known": ({ONE: "known"}, f"does not conform to {TITLE}: {ALL} of {ALL} decided, "),
    "lacking": (
        {ONE: "not-offered"},
        f"does not conform to {TITLE}: {ALL - 1} of {ALL} decided, ",
    ),
    "part": ({ONE: None}, f"{TITLE} is not decided: "),
}


@pytest.mark.parametrize(("changed", "claim"), CLAIMS.values(), ids=CLAIMS)
def test_only_a_whole_run_without_failures_of_the_target_conforms(changed, claim):
    found = {name: Evidence(each) for name, each in {**PASSED, **changed}.items() if each}
    assert conclude(found, SPECIFICATION).claim.startswith(claim)


def test_failures_of_records_that_are_out_of_date_are_counted_apart():
    other, third, fourth = ABOUT_TARGET[1:4]
    found = dict.fromkeys(SPECIFICATION, Evidence("pass"))
    found |= {ONE: Evidence("known"), other: Evidence("fail"), min(VIOLATED): Evidence("known")}
    stale = Failure("stale-record", (), "remove it")
    found[third] = Evidence("fail", failure=stale)
    found[fourth] = Evidence("not-run", "the record is out of date", stale)
    conclusion = conclude(found, SPECIFICATION)
    claim = conclusion.claim
    lines = summary_lines(found, SPECIFICATION, conclusion)
    assert lines[-1] == f"known clauses that torch.nn.parallel passes: {ONE}"
    assert f"        fail  {third}: recorded, but the tests pass" in lines
    assert f"     not-run  {fourth}: the record is out of date" in lines
    assert not any("in facts of other clauses" in line for line in lines)
    passing = len({ONE, other} - VIOLATED)
    assert claim.endswith(
        "; 1 fail, 2 known, 1 with records that are out of date; "
        f"torch.nn.parallel passes {passing} of the 3 violated clauses"
    )


@pytest.mark.parametrize(
    ("verdicts", "word"), [({}, "conforms"), (dict.fromkeys(VIOLATED, "known"), AS_REFERENCE)]
)
def test_records_that_are_out_of_date_do_not_change_the_word(verdicts, word):
    found = {name: Evidence(verdicts.get(name, "pass")) for name in SPECIFICATION}
    passed = next(name for name in ABOUT_TARGET if name not in VIOLATED)
    found[passed] = Evidence("fail", failure=Failure("stale-record", (), "remove it"))
    conclusion = conclude(found, SPECIFICATION)
    assert conclusion.word == word
    assert conclusion.claim.endswith("1 with records that are out of date")


def test_a_whole_run_with_few_examples_says_so():
    found = dict.fromkeys(SPECIFICATION, Evidence("pass"))
    text = "5 examples a test: with more, other tests may fail"
    assert text in conclude(found, SPECIFICATION, examples=5).notes
    assert text not in conclude(found, SPECIFICATION, examples=25).notes


def test_a_run_of_another_suite_is_not_decided():
    claim = f"{TITLE} is not decided: the run is of another suite, 0.9+1234567"
    assert conclude({}, SPECIFICATION, "0.9+1234567").claim == claim
