"""Runs of a small suite: errors of collection, selection, and what a run prints."""

from xml.etree.ElementTree import parse

import pytest

from spec_tests.machine.tests.fixtures import ROOT
from spec_tests.machine.tests.small_suite import TWO_TESTS
from spec_tests.machine.verdict_file import read
from spec_tests.machine.verdicts import PROGRAM

pytest_plugins = ["pytester"]

#: Two tests that do nothing. The parameters of the second test are inserted.
FIXTURES_OF_TWO = """
@clause("a.one")
def test_one(target): pass
@clause("a.two")
def test_two({fixtures}): pass
"""
ONE_TEST = "@clause('a.one')\ndef test_one(): pass"
BOTH = TWO_TESTS.format(one="True", two="pass")
ONLY_COMPARED = "clauses tested only by comparison with torch.nn.parallel: a.two"
NO_TEST = "clauses without a test: a.two"
#: For each case: a suite, and the error that refuses it.
WRONG_SUITES = {
    "no-clause": ("def test_x(): pass", "test_x names no clause"),
    "unknown-clause": (
        "@clause('a.three')\ndef test_x(): pass",
        "names the unknown clause a.three",
    ),
    "clause-without-a-test": (ONE_TEST, NO_TEST),
    "only-compared": (FIXTURES_OF_TWO.format(fixtures="target, reference"), ONLY_COMPARED),
    "only-the-reference": (FIXTURES_OF_TWO.format(fixtures="reference"), ONLY_COMPARED),
    "id-not-a-literal": (
        BOTH.replace('"a.two"', '"a." + "two"'),
        "test_two: its file does not contain the id a.two",
    ),
    "no-facts": (
        "@clause('a.one')\n@clause('a.two')\ndef test_x(): pass",
        "test_x: a.two is not its first clause, and needs `facts` in clauses.toml",
    ),
}
#: For each list of options: the error that refuses it.
WRONG_OPTIONS = {
    "--clause=a.tx": "--clause a.tx: no clause has this name",
    "--resume": "--resume needs the file of --verdicts",
    "--verdicts=test_it.py --resume": "test_it.py, line 1 is not JSON",
    "--target-map=test_it.py": "test_it.py is not TOML",
    "--without=wings": "sim has no feature 'wings'",
    "--recorded": "--recorded: the target has no register",
}
REFUSED = {
    **{name: (body, [], error) for name, (body, error) in WRONG_SUITES.items()},
    **{options: (BOTH, options.split(), error) for options, error in WRONG_OPTIONS.items()},
    "selected-clause": (ONE_TEST, ["--clause=a.two"], NO_TEST),
    "second-selected-clause": (ONE_TEST, ["--clause=a.one", "--clause=a.two"], NO_TEST),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_wrong_suite_or_option_is_refused(run_suite, case):
    body, options, error = REFUSED[case]
    result = run_suite(body, *options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert error in result.stderr.str()


@pytest.mark.slow
def test_a_run_with_workers_is_refused_without_an_internal_error(run_suite_in_new_process):
    result = run_suite_in_new_process(ONE_TEST, "-n", "2")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stdout.fnmatch_lines("ERROR: clauses without a test: a.two")
    result.stdout.no_fnmatch_line("*INTERNALERROR*")


def test_a_run_that_ignores_files_needs_no_test_of_each_clause(run_suite):
    result = run_suite(ONE_TEST, "--ignore=elsewhere")
    result.assert_outcomes(passed=1)


def test_clause_option_deselects_tests_of_other_clauses(run_suite):
    result = run_suite(TWO_TESTS.format(one="False", two="pass"), "--clause", "a.t")
    result.assert_outcomes(passed=1, deselected=1)
    result.stdout.fnmatch_lines("without a verdict in the chapter a: 1 clause")


def test_a_failed_test_has_its_facts_in_junit_and_its_filters_in_its_program(run_suite, pytester):
    path = pytester.path / "junit.xml"
    filters = "pytestmark = pytest.mark.filterwarnings('ignore:text')\n"
    body = filters + ONE_TEST.replace("pass", "assert []")
    result = run_suite(body, f"--junitxml={path}", "-k", "one")
    result.assert_outcomes(failed=1)
    properties = {
        each.attrib["name"]: each.attrib["value"] for each in parse(path).iter("property")
    }
    assert properties == {"clause": "a.one", "violates": "a.one", "fact": "assert: []"}
    reports = result.reprec.getreports("pytest_runtest_logreport")
    (program,) = [text for each in reports for key, text in each.user_properties if key == PROGRAM]
    assert "pytestmark = [pytest.mark.filterwarnings('ignore:text')]" in program


def test_tests_that_need_the_reference_are_skipped_without_it(run_suite, pytester):
    path = pytester.path / "verdicts.jsonl"
    body = TWO_TESTS.format(one="True", two="pass").replace(
        "two(target)", "two(target, reference)"
    )
    body += "@clause('a.two')\ndef test_three(target, baselines): assert len(baselines) == 1\n"
    result = run_suite(body, "--reference=none", "--verdicts", str(path))
    result.assert_outcomes(passed=2, skipped=1)
    result.stdout.fnmatch_lines("reference: none, because --reference is none")
    assert read(path)[1].reason == "compares with torch.nn.parallel, but --reference is none"


def test_verdicts_are_counted_and_listed_by_clause(run_suite):
    body = TWO_TESTS.format(one="False", two="not_run('no reason')")
    result = run_suite(f"from spec_tests.machine.devices import not_run\n{body}")
    result.stdout.re_match_lines([r"all +1 +0 +0 +0 +1", r" +fail  a.one", r" +not-run  a.two"])


#: Returns the text that a process writes to stderr if it uses a name that the target lacks.
STDERR = """
import traceback
def stderr(target):
    try: target.comm.no_such_name
    except BaseException: return traceback.format_exc()
"""


def test_a_missing_name_in_the_output_of_a_process_is_not_offered(run_suite):
    one = "not stderr(target), stderr(target)"
    result = run_suite(STDERR + TWO_TESTS.format(one=one, two="pass"))
    result.stdout.re_match_lines([r"all +0 +1 +0 +1 +0", r" +not-offered  a.one"])


@pytest.mark.slow
def test_the_plugin_changes_nothing_without_a_target(pytester, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makepyfile("import warnings\ndef test_it(): warnings.warn('not an error here')")
    pytester.runpytest_subprocess("-p", "spec_tests").assert_outcomes(passed=1, warnings=1)


def test_files_without_a_selected_clause_are_not_imported(run_suite, pytester):
    pytester.makepyfile(test_other="raise RuntimeError('imported')")
    body = "@clause('a.two')\ndef test_two(target): pass"
    run_suite(body, "--clause", "a.two").assert_outcomes(passed=1)
    run_suite(body).assert_outcomes(errors=1)
