"""What the suite refuses at collection, and what it prints, seen from outside."""

import json
import tomllib
from pathlib import Path

import pytest
import torch

from spec_tests.harness.conformance import clauses
from spec_tests.harness.conformance.verdicts import read
from spec_tests.meta_tests.small_suite import BOTH, RECORD

ROOT = Path(__file__).resolve().parents[2]
SUITE = ROOT / "spec_tests"
REGISTERS = sorted((SUITE / "registers").glob("*.toml"))
pytest_plugins = ["pytester"]


def test_a_test_without_a_clause_is_refused(suite):
    suite("def test_x(): pass").stderr.fnmatch_lines("*test_x names no clause*")


def test_an_unknown_clause_is_refused(suite):
    body = "@clause('a.three')\ndef test_x(): pass"
    suite(body).stderr.fnmatch_lines("*names the unknown clause a.three*")


def test_a_clause_without_a_test_is_refused(suite):
    body = "@clause('a.one')\ndef test_x(): pass"
    suite(body).stderr.fnmatch_lines("*clauses without a test: a.two*")


def test_what_workers_refuse_is_told_as_without_them(suite):
    result = suite("@clause('a.one')\ndef test_x(): pass", "-n", "2")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stdout.fnmatch_lines("ERROR: clauses without a test: a.two")
    result.stdout.no_fnmatch_line("*INTERNALERROR*")


@pytest.mark.parametrize("register", REGISTERS, ids=lambda path: path.stem)
def test_every_record_names_a_test_that_is_there(register):
    # A run refuses a stale one, too; but runs of the targets of most registers are rare.
    records = tomllib.loads(register.read_text(encoding="utf-8"))
    names = {name for each in records.get("divergence", []) for name in each["tests"]}
    for name in names | set(records.get("repaired", [])):
        file, _, test = name.partition("::")
        source = (SUITE / file).read_text(encoding="utf-8")
        assert f"def {test.partition('[')[0]}(" in source, name


AGREEMENT = """
@clause("a.one")
def test_one(target): pass
@clause("a.two")
def test_two({sides}): pass
"""


@pytest.mark.parametrize("sides", ["target, reference", "reference"])
def test_a_clause_judged_by_agreement_alone_is_refused(suite, sides):
    result = suite(AGREEMENT.format(sides=sides))
    result.stderr.fnmatch_lines("*clauses tested only by comparison with torch.nn.parallel: a.two")


def test_clauses_judged_by_agreement_alone_are_counted(suite):
    tests = ("-k", "test_")  # a selection is not refused
    result = suite(AGREEMENT.format(sides="target, reference"), *tests)
    result.stdout.fnmatch_lines(
        "1 clause is tested only by comparison with torch.nn.parallel: a.two"
    )
    result = suite(AGREEMENT.format(sides="target, answers"), *tests)
    twice = [
        "0 clauses are tested only by comparison with torch.nn.parallel"
    ] * 2  # before the tests and after them
    result.stdout.fnmatch_lines(twice)


def test_what_asks_the_reference_is_not_run_without(suite, pytester):
    path = pytester.path / "verdicts.jsonl"
    body = BOTH.format(one="True", two="pass").replace("two(target)", "two(target, reference)")
    body += "@clause('a.two')\ndef test_three(target, answers): assert len(answers) == 1\n"
    result = suite(body, "--reference=none", "--verdicts", str(path))
    result.assert_outcomes(passed=2, skipped=1)
    result.stdout.fnmatch_lines("reference: none")
    assert [each.get("by") for each in read(path)] == [None, "agreement", None]
    assert read(path)[1]["reason"] == "compares with torch.nn.parallel, and --reference is none"


def test_verdicts_are_counted_by_clause(suite):
    result = suite(BOTH.format(one="False", two="pytest.skip('not-run: no reason')"))
    result.stdout.re_match_lines([r"all +1 +0 +0 +0 +1", r" +fail  a.one", r" +not-run  a.two"])


def _lines(path):
    run, *tests = [json.loads(line) for line in path.read_text().splitlines()]
    assert list(run) == ["run"]
    return tests


def test_verdicts_are_written_with_their_reasons(suite, pytester):
    path = pytester.path / "verdicts.jsonl"
    body = BOTH.format(one="1 == 2", two="pytest.skip('not-run: no reason')")
    suite(body, "--verdicts", str(path))
    first, second = _lines(path)
    assert first["clause"] == "a.one"
    assert (first["verdict"], second["verdict"]) == ("fail", "not-run")
    assert first["reason"].startswith("assert 1 == 2")
    assert second["reason"] == "no reason"


def test_the_first_line_of_verdicts_says_what_was_run(suite, pytester):
    path = pytester.path / "verdicts.jsonl"
    options = ["--device-ids=0,0", "--target-map=comm=torch.nn.parallel.comm"]
    body = BOTH.format(one="True", two="pass")
    suite(body, f"--verdicts={path}", *options, target="torch")
    run = json.loads(path.read_text().splitlines()[0])["run"]
    assert (run["target"], run["torch"]) == ("torch", torch.__version__)
    assert (run["version"], run["devices"]) == (torch.__version__, ["sim:0", "sim:0"])
    assert run["suite"] == clauses.suite_version(["a.one", "a.two"])
    given = "torch --accelerator=sim --device-ids=0,0"
    mapped = "--target-map=comm=torch.nn.parallel.comm"
    assert run["command"] == f"parallel-conformance run {given} {mapped}"


#: Fails for every number but 0; 1 is the smallest.
DRAWN = """
from hypothesis import given, strategies as st
@clause("a.one")
@given(number=st.integers(0, 10))
def test_one(target, number): assert number == 0, "not so"
@clause("a.two")
def test_two(target): pass
"""


@pytest.mark.parametrize("verdict", ["fail", "known"])
def test_verdicts_hold_the_smallest_call_and_the_difference(suite, pytester, verdict):
    path = pytester.path / "verdicts.jsonl"
    record = RECORD.format(test="test_one", failure="AssertionError: not so")
    pytester.path.joinpath("known.toml").write_text(record)
    known = ["--divergences", "known.toml"] if verdict == "known" else []
    suite(DRAWN, "--verdicts", str(path), *known)
    first, _ = _lines(path)
    assert (first["verdict"], first["call"]) == (verdict, "1")
    assert first["difference"].startswith("not so")


#: Ends the run, as a limit of time would, when the verdict of the test before has been written.
CUT = """
    import os, pathlib, time
    path = pathlib.Path({path!r})
    while not (path.exists() and path.stat().st_size): time.sleep(0.01)
    os.kill(os.{run}(), 9)
"""


@pytest.mark.parametrize("workers", [0, 2], ids="workers={}".format)
def test_a_run_that_is_cut_off_is_resumed(suite, pytester, workers):
    path = pytester.path / "verdicts.jsonl"
    options = ["--verdicts", str(path), f"-n{workers}", "--dist=loadfile"]
    cut = CUT.format(path=str(path), run="getppid" if workers else "getpid")
    suite(BOTH.format(one="False", two=cut), *options)
    assert [(line["clause"], line["verdict"]) for line in _lines(path)] == [("a.one", "fail")]
    result = suite(BOTH.format(one="True", two="pass"), *options, "--resume")
    result.assert_outcomes(passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED  # The former run has seen it.
    result.stdout.re_match_lines([r"all +1 +0 +0 +1 +0"])
    assert [line["verdict"] for line in _lines(path)] == ["fail", "pass"]


def test_a_failure_is_written_as_a_register_names_it(suite, pytester):
    path = pytester.path / "verdicts.jsonl"
    body = BOTH.format(one="1 == 2", two="raise KeyError('first\\nsecond')")
    suite(body, "--verdicts", str(path))
    failures = [line["failure"] for line in _lines(path)]
    assert failures == ["AssertionError: assert 1 == 2", r"KeyError: 'first\nsecond'"]


def test_without_resume_the_file_is_written_anew(suite, pytester):
    path = pytester.path / "verdicts.jsonl"
    for _ in range(2):
        suite(BOTH.format(one="True", two="pass"), "--verdicts", str(path))
    assert [line["test"] for line in _lines(path)] == [
        "test_it.py::test_one",
        "test_it.py::test_two",
    ]


def test_a_test_that_names_no_clause_has_a_verdict(suite, pytester):
    path = pytester.path / "verdicts.jsonl"
    tests = pytester.mkdir("meta_tests")
    tests.joinpath("test_suite.py").write_text("def test_it(): pass")
    suite(BOTH.format(one="True", two="pass"), "--verdicts", str(path))
    verdicts = {line["test"]: line.get("clause") for line in _lines(path)}
    assert verdicts["meta_tests/test_suite.py::test_it"] is None


def test_a_known_difference_is_known_and_strict(suite, pytester):
    record = pytester.path / "known.toml"
    record.write_text(RECORD.format(test="test_one", failure="AssertionError: assert False"))
    options = ("--divergences", str(record))
    suite(BOTH.format(one="False", two="pass"), *options).assert_outcomes(xfailed=1, passed=1)
    suite(BOTH.format(one="True", two="pass"), *options).assert_outcomes(failed=1, passed=1)


@pytest.mark.parametrize("failure", ["KeyError: ", "AssertionError: assert True"])
def test_a_known_difference_that_shows_otherwise_fails(suite, pytester, failure):
    record = pytester.path / "known.toml"
    record.write_text(RECORD.format(test="test_one", failure=failure))
    result = suite(BOTH.format(one="False", two="pass"), "--divergences", str(record))
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(f"*known: X-1, but the records expect *{failure}*")


@pytest.fixture
def heir(pytester):
    """Write a register that is built on another, of one record, and return its options."""

    def write(text="", failure="AssertionError: assert False"):
        base = RECORD.format(test="test_one", failure=failure)
        pytester.path.joinpath("base.toml").write_text(base)
        own = pytester.path / "own.toml"
        own.write_text(f'inherits = "base"\n{text}')
        return "--divergences", str(own)

    return write


def test_the_records_of_another_register_are_inherited(suite, heir):
    suite(BOTH.format(one="False", two="pass"), *heir()).assert_outcomes(xfailed=1, passed=1)
    suite(BOTH.format(one="True", two="pass"), *heir()).assert_outcomes(failed=1, passed=1)


def test_what_is_repaired_is_not_inherited(suite, heir):
    options = heir('repaired = ["test_it.py::test_one"]')
    suite(BOTH.format(one="True", two="pass"), *options).assert_outcomes(passed=2)
    suite(BOTH.format(one="False", two="pass"), *options).assert_outcomes(failed=1, passed=1)


def test_a_repair_of_what_is_not_inherited_is_refused(suite, heir):
    result = suite(BOTH.format(one="True", two="pass"), *heir('repaired = ["test_it.py::test_x"]'))
    result.stderr.fnmatch_lines("*own.toml: no inherited record names test_it.py::test_x*")


def test_an_inherited_test_may_fail_in_a_way_of_its_own(suite, heir):
    own = RECORD.format(test="test_one", failure="AssertionError: assert 1 == 2")
    options = heir(own, failure="KeyError: ")
    suite(BOTH.format(one="1 == 2", two="pass"), *options).assert_outcomes(xfailed=1, passed=1)


@pytest.mark.parametrize(
    ("failure", "table"), [("KeyError: ", "0 +1 +0 +1 +0"), ("NotOffered: ", "0 +0 +1 +1 +0")]
)
def test_a_missing_name_is_known_only_if_the_record_says_so(suite, heir, failure, table):
    body = BOTH.format(one="target.comm.no_such_name", two="pass")
    result = suite(body, *heir(failure=failure))
    result.stdout.re_match_lines([rf"all +{table}"])


def test_a_record_that_names_no_test_is_refused(suite, pytester):
    record = pytester.path / "known.toml"
    record.write_text(RECORD.format(test="test_three", failure="AssertionError: "))
    result = suite(BOTH.format(one="True", two="pass"), "--divergences", str(record))
    result.stderr.fnmatch_lines("*divergence X-1 names a test that does not exist*test_three*")


def test_a_missing_name_fails_the_tests_that_use_it_only(suite):
    body = BOTH.format(one="target.comm.no_such_name", two="target.comm.scatter")
    result = suite(body)
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines("*the target does not define comm.no_such_name*")


def test_a_program_that_uses_a_missing_name_does_so_too(suite):
    target = "from spec_tests.harness.environment.target import Target"
    program = f"{target}; Target('impl').comm.no_such_name"
    run = f"subprocess.run([sys.executable, '-c', {program!r}], stderr=-1, text=True)"
    one = f"not (told := {run}.stderr), told"
    result = suite("import subprocess, sys\n" + BOTH.format(one=one, two="pass"))
    result.stdout.re_match_lines([r"all +0 +1 +0 +1 +0", r" +not-offered  a.one"])


def test_the_header_names_target_devices_and_torch(suite):
    result = suite(BOTH.format(one="True", two="pass"))
    result.stdout.fnmatch_lines(
        ["target: impl", "devices: sim:0, sim:1, sim:2, sim:3 (*", "torch: *"]
    )


def test_the_suite_s_options_do_nothing_without_a_target(pytester, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makepyfile("import warnings\ndef test_it(): warnings.warn('not an error here')")
    program = "import sys\ndef pytest_unconfigure():\n    print('torch' in sys.modules)"
    pytester.makeconftest(program)
    result = pytester.runpytest_subprocess("-p", "spec_tests.harness.pytest_plugin.options", "-s")
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines("False")


def test_tests_of_other_clauses_are_deselected(suite):
    result = suite(BOTH.format(one="False", two="pass"), "--clause", "a.two")
    result.assert_outcomes(passed=1, deselected=1)
    result = suite(BOTH.format(one="True", two="pass"), "--clause", "a.tw")
    result.stderr.fnmatch_lines("*--clause a.tw: no clause has this name*")


def test_files_that_name_no_clause_asked_for_are_not_imported(suite, pytester):
    pytester.makepyfile(test_other="raise RuntimeError('imported')")
    body = "@clause('a.two')\ndef test_two(target): pass"
    suite(body, "--clause", "a.two").assert_outcomes(passed=1)
    suite(body).assert_outcomes(errors=1)


def test_a_clause_that_the_file_does_not_write_out_is_refused(suite):
    body = BOTH.format(one="True", two="pass").replace('"a.two"', '"a." + "two"')
    suite(body).stderr.fnmatch_lines("*test_two: its file does not contain the id a.two*")


def test_inputs_are_late_by_what_the_option_says(suite):
    body = "from spec_tests.harness.concurrency import delayed_inputs\n"
    body += BOTH.format(one="delayed_inputs._milliseconds == 2.5", two="pass")
    suite(body, "--late=2.5").assert_outcomes(passed=2)
    suite(body).assert_outcomes(passed=1, failed=1)


def test_a_race_fails_a_test_of_the_suite(suite):
    race = "side = torch.Stream(device='sim:0')"
    race += "; side.__enter__(); x = torch.ones(4).to('sim:0', non_blocking=True)"
    race += "; side.__exit__(None, None, None); x + 1"
    body = "import torch\n" + BOTH.format(one="True", two=race)
    result = suite(body)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines("*race on 16 bytes of sim:0*")
    suite(body, "--no-races").assert_outcomes(passed=2)


def test_resume_needs_the_file_of_verdicts(suite):
    result = suite(BOTH.format(one="True", two="pass"), "--resume")
    result.stderr.fnmatch_lines("*--resume needs the file of --verdicts*")


def test_the_extra_brings_what_the_checkout_tests_with():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extra = project["project"]["optional-dependencies"]["suite"]
    assert [each for each in project["dependency-groups"]["test"] if each not in extra] == [
        "pytest-benchmark>=5.2"
    ]
