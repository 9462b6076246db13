"""Clauses that a register declares as not offered: ``lacks = ["a.one"]``."""

import json
import tomllib

import pytest

from spec_tests.harness.conformance import clauses, register
from spec_tests.meta_tests.small_suite import BOTH, RECORD

pytest_plugins = ["pytester"]

LACKING = BOTH.format(one="target.comm.no_such_name", two="pass")
BOTH_LACKING = BOTH.format(one="target.comm.no_such_name", two="target.comm.no_such_name")
REGISTERS = sorted(register.FOLDER.glob("*.toml"))


@pytest.fixture
def lacks(pytester):
    """Write a register and return the options that name it."""

    def write(*names, more=""):
        path = pytester.path / "own.toml"
        path.write_text(f"lacks = {json.dumps(names)}\n{more}")
        return "--divergences", str(path)

    return write


def test_a_declared_clause_is_not_offered_without_error(suite, lacks):
    result = suite(LACKING, *lacks("a.one"))
    assert result.ret == pytest.ExitCode.OK
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.re_match_lines([r"all +0 +1 +0 +1 +0"])


def test_declared_clauses_are_listed_in_one_line(suite, lacks):
    result = suite(BOTH_LACKING, *lacks("a"))
    result.stdout.fnmatch_lines("not offered, as the register declares: 2 clauses (a)")
    result.stdout.no_re_match_line(r" +not-offered  a\..*")
    assert result.ret == pytest.ExitCode.OK


def test_an_undeclared_clause_is_an_error_beside_a_declared_one(suite, lacks):
    result = suite(BOTH_LACKING, *lacks("a.one"))
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(failed=1, skipped=1)
    result.stdout.re_match_lines([r"all +0 +2 +0 +0 +0", r" +not-offered  a\.two"])


@pytest.mark.parametrize("one", ["True", "target.comm.scatter is None"])
def test_a_declared_clause_that_is_offered_after_all_is_an_error(suite, lacks, one):
    result = suite(BOTH.format(one=one, two="pass"), *lacks("a.one"))
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        '*the register declares "a.one" as lacking, but the target offers it*'
    )
    result.stdout.re_match_lines([r"all +1 +0 +0 +1 +0"])


MIXED = """
@clause("a.one")
@pytest.mark.parametrize("name", ["scatter", "no_such_name"])
def test_one(target, name): getattr(target.comm, name)
@clause("a.two")
def test_two(target): pass
"""


def test_other_tests_of_a_declared_clause_may_pass(suite, lacks):
    result = suite(MIXED, *lacks("a.one"))
    result.assert_outcomes(passed=2, skipped=1)
    assert result.ret == pytest.ExitCode.OK


def test_a_selection_of_tests_does_not_show_that_a_clause_is_offered(suite, lacks):
    result = suite(MIXED, "-k", "scatter", *lacks("a.one"))
    assert result.ret == pytest.ExitCode.OK


def test_a_run_that_is_cut_off_does_not_show_that_a_clause_is_offered(suite, lacks):
    body = MIXED.replace("getattr(target.comm, name)", "assert name != 'scatter'")
    result = suite(body, "-x", *lacks("a.one"))
    result.stdout.no_fnmatch_line("*as lacking, but the target offers it*")


def test_a_failure_of_a_declared_clause_is_a_failure(suite, lacks):
    result = suite(MIXED.replace("getattr", "assert not getattr"), *lacks("a.one"))
    result.assert_outcomes(passed=1, skipped=1, failed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_a_declared_clause_that_needs_another_machine_is_not_run(suite, lacks):
    result = suite(BOTH.format(one="pytest.skip('no GPU')", two="pass"), *lacks("a.one"))
    assert result.ret == pytest.ExitCode.OK
    result.stdout.re_match_lines([r"all +0 +0 +0 +1 +1"])


def test_a_declaration_of_an_unknown_clause_is_refused(suite, lacks):
    result = suite(LACKING, *lacks("a.three"))
    result.stderr.fnmatch_lines('*own.toml: lacks "a.three": no clause has this name*')


def test_a_declaration_that_another_one_holds_is_refused(suite, lacks):
    result = suite(LACKING, *lacks("a", "a.one"))
    result.stderr.fnmatch_lines('*own.toml: lacks "a.one": "a" declares it already*')


def test_a_declaration_is_not_inherited(suite, pytester):
    pytester.path.joinpath("base.toml").write_text('lacks = ["a.one"]')
    heir = pytester.path / "heir.toml"
    heir.write_text('inherits = "base"')
    suite(LACKING, "--divergences", str(heir)).assert_outcomes(failed=1, passed=1)


def test_a_declared_clause_needs_no_record(suite, lacks):
    record = RECORD.format(test="test_one", failure="AssertionError: ")
    result = suite(LACKING, *lacks("a.one", more=record))
    result.assert_outcomes(passed=1, skipped=1)


def test_workers_declare_as_one_process_does(suite, lacks):
    result = suite(BOTH_LACKING, "-n", "2", *lacks("a"))
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines("not offered, as the register declares: 2 clauses (a)")


def test_a_resumed_run_keeps_what_was_declared(suite, lacks, pytester):
    file = ("--verdicts", str(pytester.path / "verdicts.jsonl"))
    assert suite(LACKING, *file, *lacks("a.one")).ret == pytest.ExitCode.OK
    result = suite(LACKING, *file, "--resume", *lacks("a.one"))
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result.stdout.fnmatch_lines("not offered, as the register declares: 1 clause (a.one)")


@pytest.mark.parametrize("path", REGISTERS, ids=lambda path: path.stem)
def test_every_register_declares_clauses_that_exist(path):
    declared = register.lacks(path, clauses.load())
    entries = tomllib.loads(path.read_text(encoding="utf-8"))["lacks"]
    assert set(declared.values()) == set(entries)
