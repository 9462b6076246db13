"""Registers with ``lacks = ["a.one"]``: tests of this clause use names that the target lacks."""

import json
import tomllib

import pytest

from spec_tests.harness.conformance import clauses, register
from spec_tests.harness.tests.small_suite import RECORD, TWO_TESTS

pytestmark = pytest.mark.machinery

pytest_plugins = ["pytester"]

ONE_MISSING = TWO_TESTS.format(one="target.comm.no_such_name", two="pass")
TWO_MISSING = TWO_TESTS.format(one="target.comm.no_such_name", two="target.comm.no_such_name")
REGISTERS = sorted(register.FOLDER.glob("*.toml"))


@pytest.fixture
def lacks(pytester):
    """Return a function that writes a register with ``lacks``, and returns the option for it."""

    def write(*names, more=""):
        path = pytester.path / "own.toml"
        path.write_text(f"lacks = {json.dumps(names)}\n{more}")
        return "--divergences", str(path)

    return write


def test_a_clause_that_is_missing_and_declared_does_not_fail_the_run(run_suite, lacks):
    result = run_suite(ONE_MISSING, *lacks("a.one"))
    assert result.ret == pytest.ExitCode.OK
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.re_match_lines([r"all +0 +1 +0 +1 +0"])


def test_declared_clauses_are_printed_in_one_line(run_suite, lacks):
    result = run_suite(TWO_MISSING, *lacks("a"))
    result.stdout.fnmatch_lines("not offered, as the register declares: 2 clauses (a)")
    result.stdout.no_re_match_line(r" +not-offered  a\..*")
    assert result.ret == pytest.ExitCode.OK


def test_a_clause_that_is_missing_and_not_declared_fails_the_run(run_suite, lacks):
    result = run_suite(TWO_MISSING, *lacks("a.one"))
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(failed=1, skipped=1)
    result.stdout.re_match_lines([r"all +0 +2 +0 +0 +0", r" +not-offered  a\.two"])


@pytest.mark.parametrize("one", ["True", "target.comm.scatter is None"])
def test_a_declared_clause_that_the_target_offers_fails_the_run(run_suite, lacks, one):
    result = run_suite(TWO_TESTS.format(one=one, two="pass"), *lacks("a.one"))
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        '*the register declares "a.one" as lacking, but the target offers it*'
    )
    result.stdout.re_match_lines([r"all +1 +0 +0 +1 +0"])


#: A suite of three tests. One of the two tests of ``a.one`` uses a missing name.
ONE_OF_THREE_MISSING = """
@clause("a.one")
@pytest.mark.parametrize("name", ["scatter", "no_such_name"])
def test_one(target, name): getattr(target.comm, name)
@clause("a.two")
def test_two(target): pass
"""


def test_some_tests_of_a_declared_clause_may_pass(run_suite, lacks):
    result = run_suite(ONE_OF_THREE_MISSING, *lacks("a.one"))
    result.assert_outcomes(passed=2, skipped=1)
    assert result.ret == pytest.ExitCode.OK


def test_a_declared_clause_may_pass_if_only_some_tests_are_selected(run_suite, lacks):
    result = run_suite(ONE_OF_THREE_MISSING, "-k", "scatter", *lacks("a.one"))
    assert result.ret == pytest.ExitCode.OK


def test_a_declared_clause_may_pass_in_an_aborted_run(run_suite, lacks):
    body = ONE_OF_THREE_MISSING.replace("getattr(target.comm, name)", "assert name != 'scatter'")
    result = run_suite(body, "-x", *lacks("a.one"))
    result.stdout.no_fnmatch_line("*as lacking, but the target offers it*")


def test_a_declared_clause_with_a_failing_test_fails_the_run(run_suite, lacks):
    result = run_suite(
        ONE_OF_THREE_MISSING.replace("getattr", "assert not getattr"), *lacks("a.one")
    )
    result.assert_outcomes(passed=1, skipped=1, failed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_a_declared_clause_with_a_skipped_test_is_not_run(run_suite, lacks):
    result = run_suite(TWO_TESTS.format(one="pytest.skip('no GPU')", two="pass"), *lacks("a.one"))
    assert result.ret == pytest.ExitCode.OK
    result.stdout.re_match_lines([r"all +0 +0 +0 +1 +1"])


def test_declaring_an_unknown_clause_is_refused(run_suite, lacks):
    result = run_suite(ONE_MISSING, *lacks("a.three"))
    result.stderr.fnmatch_lines('*own.toml: lacks "a.three": no clause has this name*')


def test_declaring_a_group_of_clauses_and_one_of_them_is_refused(run_suite, lacks):
    result = run_suite(ONE_MISSING, *lacks("a", "a.one"))
    result.stderr.fnmatch_lines('*own.toml: lacks "a.one": "a" declares it already*')


def test_declarations_are_not_inherited_from_another_register(run_suite, pytester):
    pytester.path.joinpath("base.toml").write_text('lacks = ["a.one"]')
    inheriting = pytester.path / "inheriting.toml"
    inheriting.write_text('inherits = "base"')
    run_suite(ONE_MISSING, "--divergences", str(inheriting)).assert_outcomes(failed=1, passed=1)


def test_a_register_may_declare_a_clause_and_have_a_record_of_it(run_suite, lacks):
    record = RECORD.format(test="test_one", failure="AssertionError: x")
    result = run_suite(ONE_MISSING, *lacks("a.one", more=record))
    result.assert_outcomes(passed=1, skipped=1)


def test_runs_with_workers_list_declared_clauses(run_suite, lacks):
    result = run_suite(TWO_MISSING, "-n", "2", *lacks("a"))
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines("not offered, as the register declares: 2 clauses (a)")


def test_a_resumed_run_lists_clauses_declared_in_the_former_run(run_suite, lacks, pytester):
    file = ("--verdicts", str(pytester.path / "verdicts.jsonl"))
    assert run_suite(ONE_MISSING, *file, *lacks("a.one")).ret == pytest.ExitCode.OK
    result = run_suite(ONE_MISSING, *file, "--resume", *lacks("a.one"))
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result.stdout.fnmatch_lines("not offered, as the register declares: 1 clause (a.one)")


@pytest.mark.parametrize("path", REGISTERS, ids=lambda path: path.stem)
def test_every_register_declares_clauses_that_exist(path):
    declared = register.load_lacks(path, clauses.load())
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("lacks", [])
    assert set(declared.values()) == set(entries)
