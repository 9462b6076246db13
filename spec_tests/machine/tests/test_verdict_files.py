"""The file of ``--verdicts``: its header, reasons and differences, and ``--resume``."""

import json

import pytest
import torch

from spec_tests.machine import clauses, verdicts
from spec_tests.machine.tests.small_suite import RECORD, TWO_TESTS

pytestmark = pytest.mark.slow
pytest_plugins = ["pytester"]


def read_verdicts(path):
    run, *tests = [json.loads(line) for line in path.read_text().splitlines()]
    assert list(run) == ["run"]
    return tests


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
    first, _ = read_verdicts(path)
    assert (first["verdict"], first["call"]) == (verdict, "number = 1")
    assert first["difference"].startswith("not so")


def test_a_long_traceback_keeps_its_error():
    difference = ("difference", f"Traceback:\n{'frame ' * 999}KeyError: end")
    report = pytest.TestReport(
        "t", ("t", 0, "t"), {}, "failed", None, "call", user_properties=[difference]
    )
    found = verdicts.failure_details(report)["difference"]
    assert found.startswith("Traceback:")
    assert found.endswith("KeyError: end")
    assert len(found) < 2000


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
    assert [(line["clause"], line["verdict"]) for line in read_verdicts(path)] == [
        ("a.one", "fail")
    ]
    result = run_suite(TWO_TESTS.format(one="True", two="pass"), *options, "--resume")
    result.assert_outcomes(passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED  # The former run had a failure.
    result.stdout.re_match_lines([r"all +1 +0 +0 +1 +0"])
    assert [line["verdict"] for line in read_verdicts(path)] == ["fail", "pass"]


def test_verdicts_have_the_reason_and_the_failure_in_the_format_of_registers(run_suite, pytester):
    path = pytester.path / "verdicts.jsonl"
    body = TWO_TESTS.format(one="1 == 2", two="raise KeyError('first\\nsecond')")
    body += "@clause('a.two')\ndef test_three(target): pytest.skip('not-run: no reason')\n"
    run_suite(body, "--verdicts", str(path))
    first, second, third = read_verdicts(path)
    assert (first["clause"], first["verdict"]) == ("a.one", "fail")
    assert first["reason"].startswith("assert 1 == 2")
    assert first["failure"] == "AssertionError: assert 1 == 2"
    assert second["failure"] == r"KeyError: 'first\nsecond'"
    assert (third["verdict"], third["reason"]) == ("not-run", "no reason")


def test_without_resume_the_verdict_file_is_overwritten(run_suite, pytester):
    path = pytester.path / "verdicts.jsonl"
    for _ in range(2):
        run_suite(TWO_TESTS.format(one="True", two="pass"), "--verdicts", str(path))
    assert [line["test"] for line in read_verdicts(path)] == [
        "test_it.py::test_one",
        "test_it.py::test_two",
    ]
