"""Profiles: the clauses that they select, and the sentence at the end of a run."""

import pytest

from spec_tests.harness.conformance import clauses, profiles
from spec_tests.harness.tests.small_suite import TWO_TESTS

pytestmark = pytest.mark.slow
pytest_plugins = ["pytester"]

NO_GRAD = "not __import__('torch').is_grad_enabled()"


def test_a_register_claims_the_profile_forward_whose_tests_run_in_no_grad_mode(
    run_suite, pytester
):
    (pytester.path / "own.toml").write_text('profile = "forward"')
    result = run_suite(TWO_TESTS.format(one=NO_GRAD, two="pass"), "--divergences=own.toml")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines("conforms to forward of suite *: 2 pass")


@pytest.mark.parametrize(
    ("options", "claim"),
    [
        ([], "does not conform to full of suite *: 1 fail, 1 pass"),
        (
            ["--profile=full", "--clause=a.two"],
            "full of suite * is not decided: 1 of its 2 clauses *",
        ),
    ],
    ids=["whole", "part"],
)
def test_a_failure_does_not_conform_and_a_part_of_a_run_decides_nothing(run_suite, options, claim):
    result = run_suite(TWO_TESTS.format(one=NO_GRAD, two="pass"), *options)
    result.stdout.fnmatch_lines(claim)


def test_a_run_of_another_suite_decides_nothing():
    known = clauses.load()
    found = dict.fromkeys(known, "pass")
    about = {"profile": "transfers", "suite": clauses.suite_version(known)}
    assert profiles.claim_of_run(about, found, known).startswith("conforms to transfers of suite ")
    older = profiles.claim_of_run(about | {"suite": "0.9+1234567"}, found, known)
    assert older == "transfers is not decided: the run is of another suite, 0.9+1234567"


def test_an_unknown_profile_of_a_register_is_refused(run_suite, pytester):
    (pytester.path / "own.toml").write_text('profile = "most"')
    result = run_suite(TWO_TESTS.format(one="True", two="pass"), "--divergences=own.toml")
    assert result.ret == pytest.ExitCode.USAGE_ERROR


def test_each_entry_of_a_profile_names_clauses():
    known = clauses.load().values()
    for profile in profiles.load().values():
        for name in (*profile.get("clauses", ()), *profile.get("without", ())):
            assert any(each.is_named_by(name) for each in known), name
