"""Runs of a small suite: errors of collection, verdicts, registers and options."""

import json
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from spec_tests.harness.conformance import clauses
from spec_tests.harness.conformance.verdicts import read
from spec_tests.harness.pytest_plugin import selection
from spec_tests.harness.tests.fixtures import ROOT
from spec_tests.harness.tests.small_suite import RECORD, TWO_TESTS

pytestmark = pytest.mark.machinery

SUITE = ROOT / "spec_tests"
REGISTERS = sorted((SUITE / "registers").glob("*.toml"))
pytest_plugins = ["pytester"]


def test_a_test_without_a_clause_is_refused(run_suite):
    run_suite("def test_x(): pass").stderr.fnmatch_lines("*test_x names no clause*")


def test_an_unknown_clause_is_refused(run_suite):
    body = "@clause('a.three')\ndef test_x(): pass"
    run_suite(body).stderr.fnmatch_lines("*names the unknown clause a.three*")


def test_a_clause_without_a_test_is_refused(run_suite):
    body = "@clause('a.one')\ndef test_x(): pass"
    run_suite(body).stderr.fnmatch_lines("*clauses without a test: a.two*")


def test_a_clause_without_a_test_ends_a_run_with_workers_without_an_internal_error(run_suite):
    result = run_suite("@clause('a.one')\ndef test_x(): pass", "-n", "2")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stdout.fnmatch_lines("ERROR: clauses without a test: a.two")
    result.stdout.no_fnmatch_line("*INTERNALERROR*")


@pytest.mark.parametrize("register", REGISTERS, ids=lambda path: path.stem)
def test_every_record_names_an_existing_test(register):
    # A run with one of these registers also refuses a record that names a test that does not
    # exist. Such runs are rare, so this test checks all registers.
    records = tomllib.loads(register.read_text(encoding="utf-8"))
    names = {name for each in records.get("divergence", []) for name in each["tests"]}
    for name in names | set(records.get("repaired", [])):
        file, _, test = name.partition("::")
        source = (SUITE / file).read_text(encoding="utf-8")
        assert f"def {test.partition('[')[0]}(" in source, name


#: Two tests that do nothing. The parameters of the second test are inserted.
FIXTURES_OF_TWO = """
@clause("a.one")
def test_one(target): pass
@clause("a.two")
def test_two({fixtures}): pass
"""


@pytest.mark.parametrize("fixtures", ["target, reference", "reference"])
def test_a_clause_tested_only_against_the_reference_is_refused(run_suite, fixtures):
    result = run_suite(FIXTURES_OF_TWO.format(fixtures=fixtures))
    result.stderr.fnmatch_lines("*clauses tested only by comparison with torch.nn.parallel: a.two")


def test_clauses_tested_only_against_the_reference_are_counted(run_suite):
    # Without -k the suite would refuse the run, because only a comparison tests a.two.
    tests = ("-k", "test_")
    result = run_suite(FIXTURES_OF_TWO.format(fixtures="target, reference"), *tests)
    result.stdout.fnmatch_lines(
        "1 clause is tested only by comparison with torch.nn.parallel: a.two"
    )
    result = run_suite(FIXTURES_OF_TWO.format(fixtures="target, baselines"), *tests)
    # The line is printed before the tests and after them.
    lines = ["0 clauses are tested only by comparison with torch.nn.parallel"] * 2
    result.stdout.fnmatch_lines(lines)


def test_tests_that_need_the_reference_are_skipped_without_it(run_suite, pytester):
    path = pytester.path / "verdicts.jsonl"
    body = TWO_TESTS.format(one="True", two="pass").replace(
        "two(target)", "two(target, reference)"
    )
    body += "@clause('a.two')\ndef test_three(target, baselines): assert len(baselines) == 1\n"
    result = run_suite(body, "--reference=none", "--verdicts", str(path))
    result.assert_outcomes(passed=2, skipped=1)
    result.stdout.fnmatch_lines("reference: none")
    assert [each.get("by") for each in read(path)] == [None, "agreement", None]
    assert read(path)[1]["reason"] == "compares with torch.nn.parallel, and --reference is none"


def test_verdicts_are_counted_and_listed_by_clause(run_suite):
    result = run_suite(TWO_TESTS.format(one="False", two="pytest.skip('not-run: no reason')"))
    result.stdout.re_match_lines([r"all +1 +0 +0 +0 +1", r" +fail  a.one", r" +not-run  a.two"])


def _verdicts(path):
    run, *tests = [json.loads(line) for line in path.read_text().splitlines()]
    assert list(run) == ["run"]
    return tests


def test_verdicts_are_written_with_their_reasons(run_suite, pytester):
    path = pytester.path / "verdicts.jsonl"
    body = TWO_TESTS.format(one="1 == 2", two="pytest.skip('not-run: no reason')")
    run_suite(body, "--verdicts", str(path))
    first, second = _verdicts(path)
    assert first["clause"] == "a.one"
    assert (first["verdict"], second["verdict"]) == ("fail", "not-run")
    assert first["reason"].startswith("assert 1 == 2")
    assert second["reason"] == "no reason"


def test_the_first_line_of_the_verdicts_describes_the_run(run_suite, pytester):
    path = pytester.path / "verdicts.jsonl"
    clause = "--clause=a.one"
    options = ["--device-ids=0,0", "--target-map=comm=torch.nn.parallel.comm", clause]
    body = TWO_TESTS.format(one="True", two="pass")
    run_suite(body, f"--verdicts={path}", *options, target="torch")
    run = json.loads(path.read_text().splitlines()[0])["run"]
    assert (run["target"], run["torch"]) == ("torch", torch.__version__)
    assert (run["version"], run["devices"]) == (torch.__version__, ["sim:0", "sim:0"])
    assert run["suite"].startswith(f"{clauses.VERSION}+")
    options = "torch --accelerator=sim --device-ids=0,0"
    target_map = "--target-map=comm=torch.nn.parallel.comm"
    assert run["command"] == f"parallel-conformance run {options} {target_map} {clause}"


#: A suite in which ``test_one`` fails for every number but 0. The smallest failing number is 1.
WITH_STRATEGY = """
from hypothesis import given, strategies as st
@clause("a.one")
@given(number=st.integers(0, 10))
def test_one(target, number): assert number == 0, "not so"
@clause("a.two")
def test_two(target): pass
"""


@pytest.mark.parametrize("verdict", ["fail", "known"])
def test_verdicts_have_the_smallest_failing_call_and_the_difference(run_suite, pytester, verdict):
    path = pytester.path / "verdicts.jsonl"
    record = RECORD.format(test="test_one", failure="AssertionError: not so")
    pytester.path.joinpath("known.toml").write_text(record)
    known = ["--divergences", "known.toml"] if verdict == "known" else []
    run_suite(WITH_STRATEGY, "--verdicts", str(path), *known)
    first, _ = _verdicts(path)
    assert (first["verdict"], first["call"]) == (verdict, "number = 1")
    assert first["difference"].startswith("not so")


#: Code of a test that kills the run as soon as the verdict of the first test is written.
KILL_RUN = """
    import os, pathlib, time
    path = pathlib.Path({path!r})
    while not (path.exists() and path.stat().st_size): time.sleep(0.01)
    os.kill(os.{process}(), 9)
"""


@pytest.mark.parametrize("workers", [0, 2], ids="workers={}".format)
def test_resume_runs_the_tests_that_a_killed_run_did_not_finish(run_suite, pytester, workers):
    path = pytester.path / "verdicts.jsonl"
    options = ["--verdicts", str(path), f"-n{workers}", "--dist=loadfile"]
    kill = KILL_RUN.format(path=str(path), process="getppid" if workers else "getpid")
    run_suite(TWO_TESTS.format(one="False", two=kill), *options)
    assert [(line["clause"], line["verdict"]) for line in _verdicts(path)] == [("a.one", "fail")]
    result = run_suite(TWO_TESTS.format(one="True", two="pass"), *options, "--resume")
    result.assert_outcomes(passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED  # The former run had a failure.
    result.stdout.re_match_lines([r"all +1 +0 +0 +1 +0"])
    assert [line["verdict"] for line in _verdicts(path)] == ["fail", "pass"]


def test_a_test_that_ends_its_process_fails_under_its_clause(run_suite, pytester):
    path = pytester.path / "verdicts.jsonl"
    body = TWO_TESTS.format(one="__import__('os').abort()", two="pass")
    run_suite(body, "-n1", "--verdicts", str(path)).assert_outcomes(passed=1, failed=1)
    first, second = _verdicts(path)
    assert (first["clause"], first["verdict"]) == ("a.one", "fail")
    assert first["failure"] == "ProcessEnded: the test ends the process"
    assert (second["clause"], second["verdict"]) == ("a.two", "pass")


def test_a_resumed_run_goes_on_after_a_test_that_ends_its_process(run_suite, pytester):
    path = pytester.path / "verdicts.jsonl"
    body = TWO_TESTS.format(one="True", two="__import__('os').abort()")
    body += "\n@clause('a.two')\ndef test_three(target): pass\n"
    run_suite(body, "-k", "test_one", "--verdicts", str(path))
    done = run_suite(body, "-n1", "--verdicts", str(path), "--resume")
    done.assert_outcomes(passed=1, failed=1)
    found = [(line["clause"], line["verdict"]) for line in _verdicts(path)]
    assert found == [("a.one", "pass"), ("a.two", "fail"), ("a.two", "pass")]


@pytest.mark.parametrize(
    ("failure", "verdict"),
    [("ProcessEnded: the test ends the process", "known"), ("RuntimeError: other", "fail")],
)
def test_a_record_may_expect_that_a_test_ends_its_process(run_suite, pytester, failure, verdict):
    path, register = pytester.path / "verdicts.jsonl", pytester.path / "device.toml"
    register.write_text(RECORD.format(test="test_one", failure=failure))
    body = TWO_TESTS.format(one="__import__('os').abort()", two="pass")
    done = run_suite(body, "-n1", "--verdicts", str(path), "--divergences", str(register))
    assert [line["verdict"] for line in _verdicts(path)] == [verdict, "pass"]
    assert done.ret == (verdict == "fail")


def test_failures_in_the_verdict_file_have_the_format_of_registers(run_suite, pytester):
    path = pytester.path / "verdicts.jsonl"
    body = TWO_TESTS.format(one="1 == 2", two="raise KeyError('first\\nsecond')")
    run_suite(body, "--verdicts", str(path))
    failures = [line["failure"] for line in _verdicts(path)]
    assert failures == ["AssertionError: assert 1 == 2", r"KeyError: 'first\nsecond'"]


def test_without_resume_the_verdict_file_is_overwritten(run_suite, pytester):
    path = pytester.path / "verdicts.jsonl"
    for _ in range(2):
        run_suite(TWO_TESTS.format(one="True", two="pass"), "--verdicts", str(path))
    assert [line["test"] for line in _verdicts(path)] == [
        "test_it.py::test_one",
        "test_it.py::test_two",
    ]


def test_a_meta_test_without_a_clause_has_a_verdict(run_suite, pytester):
    path = pytester.path / "verdicts.jsonl"
    tests = pytester.mkdir("tests")
    tests.joinpath("test_suite.py").write_text("def test_it(): pass")
    run_suite(TWO_TESTS.format(one="True", two="pass"), "--verdicts", str(path))
    verdicts = {line["test"]: line.get("clause") for line in _verdicts(path)}
    assert verdicts["tests/test_suite.py::test_it"] is None


def test_a_test_of_a_known_divergence_fails_the_run_if_it_passes(run_suite, pytester):
    record = pytester.path / "known.toml"
    record.write_text(RECORD.format(test="test_one", failure="AssertionError: assert False"))
    options = ("--divergences", str(record))
    run_suite(TWO_TESTS.format(one="False", two="pass"), *options).assert_outcomes(
        xfailed=1, passed=1
    )
    result = run_suite(TWO_TESTS.format(one="True", two="pass"), *options)
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(
        "*known.toml: divergence X-1 names this test, but the test passes*"
    )


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("a.one", "a.onne", "no clause has the name a.onne; did you mean a.one?"),
        ("versions =", "lacks = []\nversions =", "'lacks' stands after the record; *"),
    ],
)
def test_a_wrong_record_is_refused_with_its_file_and_id(run_suite, pytester, old, new, text):
    record = pytester.path / "known.toml"
    written = RECORD.format(test="test_one", failure="AssertionError: x")
    record.write_text(written.replace(old, new))
    body = TWO_TESTS.format(one="False", two="pass")
    result = run_suite(body, "--divergences", str(record))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(f"*known.toml: divergence X-1: {text}")


@pytest.mark.parametrize("failure", ["KeyError: x", "AssertionError: assert True"])
def test_a_test_of_a_known_divergence_fails_if_its_failure_differs_from_the_record(
    run_suite, pytester, failure
):
    record = pytester.path / "known.toml"
    record.write_text(RECORD.format(test="test_one", failure=failure))
    result = run_suite(TWO_TESTS.format(one="False", two="pass"), "--divergences", str(record))
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(
        f"*known.toml: divergence X-1 expects '{failure}', but the failure is *"
    )


#: A test of several values. A register knows that the first ones are in another order.
SEVERAL_VALUES = """
import torch
from spec_tests.harness.compare import checks
@clause("a.one")
@pytest.mark.parametrize(
    ("found", "expected"),
    [([5, 4], [4, 5]), ([0, 0], [4, 5]), ([4, 6], [4, 5]), ([5.0, 4.0], [4, 5]), ([4], [4, 5])],
    ids=["alike", "zero", "others", "dtype", "shape"],
)
def test_one(target, found, expected):
    checks.same(snapshot(found), snapshot(expected))
@clause("a.one")
def test_error(target): checks.same(1 / 0, 1)
@clause("a.two")
def test_two(target): pass
def snapshot(value):
    from spec_tests.harness.compare.snapshot import snapshot
    return snapshot(torch.tensor(value), {})
"""


def test_a_drafted_failure_is_known_only_if_the_same_differs(run_suite, pytester):
    record = RECORD.format(test="test_one", failure="AssertionError: result has values in another")
    order = " order in: checks.same(snapshot(found), snapshot(expected))"
    record = record.replace("failures", "differences").replace("another", f"another{order}")
    pytester.path.joinpath("known.toml").write_text(record)
    path = pytester.path / "verdicts.jsonl"
    run_suite(SEVERAL_VALUES, "--divergences=known.toml", f"--verdicts={path}")
    found = {each["test"].partition("::")[2]: each["verdict"] for each in _verdicts(path)}
    assert found == {
        "test_one[alike]": "known",
        **{f"test_one[{name}]": "fail" for name in ("zero", "others", "dtype", "shape")},
        "test_error": "fail",
        "test_two": "pass",
    }


@pytest.mark.parametrize("versions", ["torch<2", "pytest>=99"])
def test_a_record_of_other_versions_expects_no_failure(run_suite, pytester, versions):
    record = pytester.path / "known.toml"
    text = RECORD.format(test="test_one", failure="AssertionError: assert False")
    record.write_text(text.replace("torch>=2.11", versions))
    options = ("--divergences", str(record))
    run_suite(TWO_TESTS.format(one="True", two="pass"), *options).assert_outcomes(passed=2)
    run_suite(TWO_TESTS.format(one="False", two="pass"), *options).assert_outcomes(
        failed=1, passed=1
    )


def test_versions_before_the_records_are_for_records_without_versions(run_suite, pytester):
    record = pytester.path / "known.toml"
    text = RECORD.format(test="test_one", failure="AssertionError: assert False")
    without = text.replace('versions = "torch>=2.11"\n', "")
    options = ("--divergences", str(record))
    record.write_text(f'versions = "torch<2"\n{without}')
    run_suite(TWO_TESTS.format(one="True", two="pass"), *options).assert_outcomes(passed=2)
    record.write_text(f'versions = "torch<2"\n{text}')
    run_suite(TWO_TESTS.format(one="False", two="pass"), *options).assert_outcomes(
        xfailed=1, passed=1
    )


@pytest.mark.parametrize(
    ("versions", "error"),
    [
        ("2.13.0", "divergence X-1: versions '2.13.0' is not like 'torch>=2.11'"),
        ("torch", "divergence X-1: versions 'torch' is not like 'torch>=2.11'"),
        ("no-such-package>=1", "versions 'no-such-package>=1': no-such-package is not installed"),
    ],
    ids=["number", "no-specifier", "not-installed"],
)
def test_a_record_whose_versions_cannot_be_compared_is_refused(
    run_suite, pytester, versions, error
):
    record = pytester.path / "known.toml"
    text = RECORD.format(test="test_one", failure="AssertionError: x")
    record.write_text(text.replace("torch>=2.11", versions))
    result = run_suite(TWO_TESTS.format(one="True", two="pass"), "--divergences", str(record))
    result.stderr.fnmatch_lines(f"*{error}*")


@pytest.fixture
def inherits(pytester):
    """Return a function that writes a register that inherits, and returns the option for it.

    The inherited register has one record, for ``test_one``.
    """

    def write(text="", failure="AssertionError: assert False"):
        base = RECORD.format(test="test_one", failure=failure)
        pytester.path.joinpath("base.toml").write_text(base)
        own = pytester.path / "own.toml"
        own.write_text(f'inherits = "base"\n{text}')
        return "--divergences", str(own)

    return write


def test_records_of_the_base_register_are_inherited(run_suite, inherits):
    run_suite(TWO_TESTS.format(one="False", two="pass"), *inherits()).assert_outcomes(
        xfailed=1, passed=1
    )
    run_suite(TWO_TESTS.format(one="True", two="pass"), *inherits()).assert_outcomes(
        failed=1, passed=1
    )


def test_records_of_repaired_tests_are_not_inherited(run_suite, inherits):
    options = inherits('repaired = ["test_it.py::test_one"]')
    run_suite(TWO_TESTS.format(one="True", two="pass"), *options).assert_outcomes(passed=2)
    run_suite(TWO_TESTS.format(one="False", two="pass"), *options).assert_outcomes(
        failed=1, passed=1
    )


def test_register_entry_repaired_must_name_a_test_of_an_inherited_record(run_suite, inherits):
    result = run_suite(
        TWO_TESTS.format(one="True", two="pass"), *inherits('repaired = ["test_it.py::test_x"]')
    )
    result.stderr.fnmatch_lines("*own.toml: no inherited record names test_it.py::test_x*")


def test_a_record_replaces_the_inherited_record_of_the_same_test(run_suite, inherits):
    own = RECORD.format(test="test_one", failure="AssertionError: assert 1 == 2")
    options = inherits(own, failure="KeyError: x")
    run_suite(TWO_TESTS.format(one="1 == 2", two="pass"), *options).assert_outcomes(
        xfailed=1, passed=1
    )


@pytest.mark.parametrize(
    ("failure", "table"),
    [("KeyError: x", "0 +1 +0 +1 +0"), ("NotOffered: the target", "0 +0 +1 +1 +0")],
)
def test_a_missing_name_is_known_only_if_the_record_expects_not_offered(
    run_suite, inherits, failure, table
):
    body = TWO_TESTS.format(one="target.comm.no_such_name", two="pass")
    result = run_suite(body, *inherits(failure=failure))
    result.stdout.re_match_lines([rf"all +{table}"])


def test_a_record_without_a_collected_test_is_refused(run_suite, pytester):
    record = pytester.path / "known.toml"
    record.write_text(RECORD.format(test="test_three", failure="AssertionError: x"))
    result = run_suite(TWO_TESTS.format(one="True", two="pass"), "--divergences", str(record))
    result.stderr.fnmatch_lines("*divergence X-1 names a test that does not exist*test_three*")


def test_a_missing_name_fails_only_tests_that_use_it(run_suite):
    body = TWO_TESTS.format(one="target.comm.no_such_name", two="target.comm.scatter")
    result = run_suite(body)
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines("*the target does not define comm.no_such_name*")


def test_a_missing_name_in_a_subprocess_is_not_offered(run_suite):
    target = "from spec_tests.harness.environment.target import Target"
    program = f"{target}; Target('impl').comm.no_such_name"
    run = f"subprocess.run([sys.executable, '-c', {program!r}], stderr=-1, text=True)"
    one = f"not (stderr := {run}.stderr), stderr"
    result = run_suite("import subprocess, sys\n" + TWO_TESTS.format(one=one, two="pass"))
    result.stdout.re_match_lines([r"all +0 +1 +0 +1 +0", r" +not-offered  a.one"])


def test_the_header_names_target_devices_and_torch(run_suite):
    result = run_suite(TWO_TESTS.format(one="True", two="pass"))
    result.stdout.fnmatch_lines(
        ["target: impl", "devices: sim:0, sim:1, sim:2, sim:3 (*", "torch: *"]
    )


def test_options_plugin_without_a_target_imports_no_torch(pytester, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makepyfile("import warnings\ndef test_it(): warnings.warn('not an error here')")
    program = "import sys\ndef pytest_unconfigure():\n    print('torch' in sys.modules)"
    pytester.makeconftest(program)
    result = pytester.runpytest_subprocess("-p", "spec_tests.harness.pytest_plugin.options", "-s")
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines("False")


def test_clause_option_deselects_tests_of_other_clauses(run_suite):
    result = run_suite(TWO_TESTS.format(one="False", two="pass"), "--clause", "a.t")
    result.assert_outcomes(passed=1, deselected=1)
    result = run_suite(TWO_TESTS.format(one="True", two="pass"), "--clause", "a.tx")
    result.stderr.fnmatch_lines("*--clause a.tx: no clause has this name*")


def test_files_without_a_selected_clause_are_not_imported(run_suite, pytester):
    pytester.makepyfile(test_other="raise RuntimeError('imported')")
    body = "@clause('a.two')\ndef test_two(target): pass"
    run_suite(body, "--clause", "a.two").assert_outcomes(passed=1)
    run_suite(body).assert_outcomes(errors=1)


def test_the_first_files_of_all_folders_run_before_the_second_files():
    names = ["a/1.py", "a/1.py", "a/2.py", "cpp_front_end/1.py", "b/1.py", "b/2.py"]
    items = [SimpleNamespace(path=Path(name)) for name in names]
    selection.interleave(items)
    order = [str(item.path) for item in items]
    assert order == ["a/1.py", "a/1.py", "b/1.py", "a/2.py", "b/2.py", "cpp_front_end/1.py"]


def test_a_clause_id_that_is_not_a_string_literal_is_refused(run_suite):
    body = TWO_TESTS.format(one="True", two="pass").replace('"a.two"', '"a." + "two"')
    run_suite(body).stderr.fnmatch_lines("*test_two: its file does not contain the id a.two*")


def test_late_option_sets_the_delay_in_milliseconds(run_suite):
    body = "from spec_tests.harness.concurrency import delayed_inputs\n"
    body += TWO_TESTS.format(one="delayed_inputs._milliseconds == 2.5", two="pass")
    run_suite(body, "--late=2.5").assert_outcomes(passed=2)
    run_suite(body).assert_outcomes(passed=1, failed=1)


def test_a_race_fails_the_test(run_suite):
    race = "side = torch.Stream(device='sim:0')"
    race += "; side.__enter__(); x = torch.ones(4).to('sim:0', non_blocking=True)"
    race += "; side.__exit__(None, None, None); x + 1"
    body = "import torch\n" + TWO_TESTS.format(one="True", two=race)
    result = run_suite(body)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines("*race on 16 bytes of sim:0*")
    run_suite(body, "--no-races").assert_outcomes(passed=2)


def test_resume_needs_a_verdict_file(run_suite):
    result = run_suite(TWO_TESTS.format(one="True", two="pass"), "--resume")
    result.stderr.fnmatch_lines("*--resume needs the file of --verdicts*")


def test_extra_suite_has_the_packages_of_the_test_environment():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extra = project["project"]["optional-dependencies"]["suite"]
    assert [each for each in project["dependency-groups"]["test"] if each not in extra] == [
        "pytest-benchmark>=5.2"
    ]
