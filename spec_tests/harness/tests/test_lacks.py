"""Registers with ``lacks``: the tests of these clauses use names that the target lacks."""

import json

import pytest

from spec_tests.harness.tests.small_suite import TWO_TESTS

pytestmark = pytest.mark.machinery

pytest_plugins = ["pytester"]

MISSING_NAME = "target.comm.no_such_name"
ONE_MISSING = TWO_TESTS.format(one=MISSING_NAME, two="pass")
TWO_MISSING = TWO_TESTS.format(one=MISSING_NAME, two=MISSING_NAME)
#: A suite of three tests. One of the two tests of ``a.one`` uses a missing name.
ONE_OF_THREE_MISSING = """
@clause("a.one")
@pytest.mark.parametrize("name", ["scatter", "no_such_name"])
def test_one(target, name): getattr(target.comm, name)
@clause("a.two")
def test_two(target): pass
"""
DECLARED = "not offered, as the register declares: "
OFFERED = 'the register declares "a.one" as lacking, but the target offers it'
OK, FAILED = pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED
#: For each case: a suite, the declared clauses, options, the exit status, and a printed text.
CASES = {
    "with-workers": (TWO_MISSING, ["a"], ["-n2"], OK, f"{DECLARED}2 clauses (a)"),
    "not-declared": (TWO_MISSING, ["a.one"], [], FAILED, "not-offered  a.two"),
    "offered": (TWO_TESTS.format(one="True", two="pass"), ["a.one"], [], FAILED, OFFERED),
    "some-tests-pass": (ONE_OF_THREE_MISSING, ["a.one"], [], OK, DECLARED),
    "only-some-tests-run": (ONE_OF_THREE_MISSING, ["a.one"], ["-k", "scatter"], OK, "1 passed"),
    "a-test-fails": (
        ONE_OF_THREE_MISSING.replace("getattr", "assert not getattr"),
        ["a.one"],
        [],
        FAILED,
        "fail  a.one",
    ),
}


@pytest.fixture
def lacks(pytester):
    """Return a function that writes a register with ``lacks``, and returns the option for it."""

    def write(*names):
        path = pytester.path / "own.toml"
        path.write_text(f"lacks = {json.dumps(names)}")
        return "--divergences", str(path)

    return write


@pytest.mark.parametrize("case", CASES)
def test_a_run_judges_the_declared_clauses(run_suite, lacks, case):
    body, names, options, status, printed = CASES[case]
    result = run_suite(body, *options, *lacks(*names))
    assert result.ret == status
    assert printed in result.stdout.str()


def test_a_declared_clause_may_pass_in_an_aborted_run(run_suite, lacks):
    body = ONE_OF_THREE_MISSING.replace("getattr(target.comm, name)", "assert name != 'scatter'")
    result = run_suite(body, "-x", *lacks("a.one"))
    assert OFFERED not in result.stdout.str()


def test_declarations_are_not_inherited_from_another_register(run_suite, pytester):
    pytester.path.joinpath("base.toml").write_text('lacks = ["a.one"]')
    inheriting = pytester.path / "inheriting.toml"
    inheriting.write_text('inherits = "base"')
    run_suite(ONE_MISSING, "--divergences", str(inheriting)).assert_outcomes(failed=1, passed=1)


def test_a_resumed_run_lists_clauses_declared_in_the_former_run(run_suite, lacks, pytester):
    file = ("--verdicts", str(pytester.path / "verdicts.jsonl"))
    assert run_suite(ONE_MISSING, *file, *lacks("a.one")).ret == OK
    result = run_suite(ONE_MISSING, *file, "--resume", *lacks("a.one"))
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    assert f"{DECLARED}1 clause (a.one)" in result.stdout.str()
