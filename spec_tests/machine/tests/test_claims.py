"""The conclusion of a run: the sentence at its end."""

import pytest

from spec_tests.machine import clauses, record

KNOWN = clauses.load()
PASSED = dict.fromkeys(KNOWN, "pass")
TITLE = f"suite {clauses.VERSION}"


@pytest.mark.parametrize(
    ("changed", "suite", "claim"),
    [
        ({}, None, f"conforms to {TITLE}: "),
        ({"devices.copies.values": "fail"}, None, f"conforms to {TITLE}: "),
        ({"comm.scatter.slices": "known"}, None, f"does not conform to {TITLE}: 1 known, "),
        ({"comm.scatter.slices": None}, None, f"{TITLE} is not decided: "),
        ({}, "0.9+1234567", f"{TITLE} is not decided: the run is of another suite, 0.9+1234567"),
    ],
    ids=["passed", "devices-fail", "known", "part", "another-suite"],
)
def test_only_a_whole_run_without_failures_of_the_target_conforms(changed, suite, claim):
    found = {name: each for name, each in {**PASSED, **changed}.items() if each}
    assert record.claim(found, suite).startswith(claim)
