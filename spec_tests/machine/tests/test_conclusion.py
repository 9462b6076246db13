"""The conclusion of a run: the sentence at its end."""

import pytest

from spec_tests.machine import clauses, conclusion, register

KNOWN = clauses.load()
PASSED = dict.fromkeys(KNOWN, "pass")
TITLE = f"suite {clauses.VERSION}"
ONE = "comm.scatter.slices"
ABOUT_TARGET = [each.id for each in KNOWN.values() if each.is_about_target]
ALL = len(ABOUT_TARGET)
VIOLATED = register.violated_by_reference()
#: More than a tenth of the clauses about the target.
TENTH = dict.fromkeys(ABOUT_TARGET[: ALL // 10 + 1], "not-run")


@pytest.mark.parametrize(
    ("changed", "suite", "claim"),
    [
        ({}, None, f"conforms to {TITLE}: {ALL} of {ALL} decided, {len(KNOWN)} clauses"),
        ({"devices.copies.values": "fail"}, None, f"conforms to {TITLE}: "),
        ({ONE: "not-run"}, None, f"conforms to {TITLE}: {ALL - 1} of {ALL} decided, "),
        (TENTH, None, f"{TITLE} is not decided: {ALL - len(TENTH)} of {ALL} decided, "),
        (dict.fromkeys(VIOLATED, "known"), None, f"as torch.nn.parallel in {TITLE}: {ALL} of "),
        ({ONE: "known"}, None, f"does not conform to {TITLE}: {ALL} of {ALL} decided, "),
        ({ONE: "not-offered"}, None, f"does not conform to {TITLE}: {ALL - 1} of {ALL} decided, "),
        ({ONE: None}, None, f"{TITLE} is not decided: "),
        ({}, "0.9+1234567", f"{TITLE} is not decided: the run is of another suite, 0.9+1234567"),
    ],
    ids=[
        "passed",
        "devices-fail",
        "not-run",
        "tenth",
        "as-the-reference",
        "known",
        "lacking",
        "part",
        "another-suite",
    ],
)
def test_only_a_whole_run_without_failures_of_the_target_conforms(changed, suite, claim):
    found = {name: each for name, each in {**PASSED, **changed}.items() if each}
    assert conclusion.claim(found, KNOWN, suite).startswith(claim)
