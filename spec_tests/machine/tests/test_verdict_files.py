"""The file of ``--verdicts``: its header, reasons and differences, and ``--resume``."""

import json

import pytest
import torch

from spec_tests.machine import clauses
from spec_tests.machine.tests.small_suite import RECORD, TWO_TESTS
from spec_tests.machine.verdict_file import read

pytest_plugins = ["pytester"]


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


#: Tests that fail. The smallest failing number is 1; a larger one shows other facts, too.
FAILING = """
import threading
from hypothesis import given, strategies as st
from spec_tests import checks
class Call(str):
    run = None
    __repr__ = str.__str__
def check():
    try: checks.same([1], [2])
    except AssertionError as error: errors.append(error)
errors = []

@clause("a.one")
@given(number=st.integers(0, 10))
def test_drawn(target, number): assert number == 0, "not so"
@clause("a.one")
@pytest.mark.parametrize("other", ["size", "rank"])
@given(number=st.integers(0, 10**6))
def test_larger(target, number, other):
    checks.same({other: number > 5, "first": number}, {other: False, "first": 0})
@clause("a.one")
@given(x=st.just(1), functional=st.just(True))
def test_made(target, x, functional):
    checks.same(x, 2, Call("data_parallel(1)"))
@clause("a.one")
def test_replica(target):
    thread = threading.Thread(target=check)
    thread.start()
    thread.join()
    raise RuntimeError(f"Caught in replica 1.\\nTraceback:\\n{errors[0]}")
@clause("a.one")
@given(number=st.just(1))
def test_once(target, number):
    if not errors[1:]:
        check()
        raise type(errors[1])(f"Caught in replica 1.\\nTraceback:\\n{errors[1]}")
@clause("a.two")
def test_two(target): pass
"""
#: For each test: its verdict, and the kind, call and facts of its failure.
FAILURES = {
    "drawn": ("known", "assert", "number = 1", ["assert: number == 0"]),
    "larger[size]": ("fail", "differs", "number = 1", ["first: value", "size: value"]),
    "larger[rank]": ("fail", "differs", "number = 1", ["first: value", "rank: value"]),
    "made": ("fail", "differs", "data_parallel(1)", ["output: value"]),
    "replica": ("fail", "differs", "", ["output: value"]),
    "once": ("fail", "differs", "number = 1", ["output: value"]),
}


def test_verdicts_have_the_smallest_failing_call_and_the_facts_of_all_calls(run_suite, pytester):
    path = pytester.path / "verdicts.jsonl"
    record = RECORD.format(test="test_drawn", fact="assert: number == 0")
    pytester.path.joinpath("own.toml").write_text(record)
    run_suite(FAILING, f"--verdicts={path}", "--divergences=own.toml")
    *tests, _ = read(path)
    assert tests[0].failure.text.startswith("not so")
    found = {test.test.partition("::test_")[2]: test for test in tests}
    assert {
        name: (test.verdict, test.failure.kind, test.failure.call, sorted(test.failure.fact_texts))
        for name, test in found.items()
    } == FAILURES


#: Code of a test that kills the run as soon as the verdict of the first test is written.
KILL_RUN = """
    import os, pathlib, time
    path = pathlib.Path({path!r})
    while not (path.exists() and path.stat().st_size): time.sleep(0.01)
    os.kill(os.{process}(), 9)
"""


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2], ids="workers={}".format)
def test_resume_runs_the_tests_that_a_killed_run_did_not_finish(
    run_suite_in_new_process, pytester, workers
):
    path = pytester.path / "verdicts.jsonl"
    options = ["--verdicts", str(path), f"-n{workers}", "--dist=loadfile"]
    kill = KILL_RUN.format(path=str(path), process="getppid" if workers else "getpid")
    run_suite_in_new_process(TWO_TESTS.format(one="False", two=kill), *options)
    assert [(test.clause, test.verdict) for test in read(path)] == [("a.one", "fail")]
    body = TWO_TESTS.format(one="True", two="pass")
    result = run_suite_in_new_process(body, *options, "--resume")
    result.assert_outcomes(passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED  # The former run had a failure.
    result.stdout.re_match_lines([r"all +1 +0 +0 +1 +0"])
    assert [test.verdict for test in read(path)] == ["fail", "pass"]


@pytest.mark.parametrize(
    ("one", "status"), [("True", pytest.ExitCode.OK), ("False", pytest.ExitCode.TESTS_FAILED)]
)
def test_a_resumed_run_with_no_test_left_has_the_status_of_its_file(
    run_suite, pytester, one, status
):
    path = pytester.path / "verdicts.jsonl"
    body = TWO_TESTS.format(one=one, two="pass")
    run_suite(body, f"--verdicts={path}")
    result = run_suite(body, f"--verdicts={path}", "--resume")
    assert result.ret == status
    result.stdout.fnmatch_lines(["no test was run: *verdicts.jsonl has the verdicts of all tests"])
    other = run_suite(body, f"--verdicts={path}", "-k", "absent")
    assert other.ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_a_run_of_another_target_is_not_resumed(run_suite, pytester):
    path = pytester.path / "verdicts.jsonl"
    body = TWO_TESTS.format(one="True", two="pass")
    run_suite(body, f"--verdicts={path}")
    before = path.read_text().replace('"target": "impl"', '"target": "other"')
    path.write_text(before)
    result = run_suite(body, f"--verdicts={path}", "--resume")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: *verdicts.jsonl is of another run: target 'other', *"])
    assert path.read_text() == before
