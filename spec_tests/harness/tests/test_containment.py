"""A target that raises, or leaves behind, anything fails its clause; the run goes on."""

import json

import pytest

from spec_tests.harness.tests.small_suite import TWO_TESTS

pytestmark = pytest.mark.machinery
pytest_plugins = ["pytester"]

IMPORTS = """
import os, sys, threading, time, unittest
from hypothesis import given, strategies
"""
STATEMENTS = {
    "interrupt": "raise KeyboardInterrupt",
    "exit": "sys.exit(0)",
    "pytest-exit": "pytest.exit('target', returncode=0)",
    "skip": "pytest.skip('target')",
    "unittest-skip": "raise unittest.SkipTest('target')",
    "xfail": "pytest.xfail('target')",
    "excepthook": "sys.excepthook = None; threading.excepthook = None",
    "recursion-limit": "sys.setrecursionlimit(200)",
    "folder": "os.chdir('/')",
    "endless-thread": "threading.Thread(target=time.sleep, args=(1e6,)).start(); assert 0",
    "ends-process": "os._exit(0)",
}
TEST = """
@clause("a.one")
def test_{}(target): {}
"""
GIVEN = """
@clause("a.one")
@given(number=strategies.integers())
def test_given(target, number): pytest.skip("target")
"""


def test_whatever_a_target_does_is_a_verdict(run_suite, pytester):
    tests = [TEST.format(name.replace("-", "_"), each) for name, each in STATEMENTS.items()]
    path = pytester.path / "verdicts.jsonl"
    body = "".join([IMPORTS, *tests, GIVEN, TWO_TESTS.format(one="True", two="pass")])
    done = run_suite(body, "-n1", f"--verdicts={path}")
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    _, *lines = [json.loads(line) for line in path.read_text().splitlines()]
    passed = {line["test"] for line in lines if line["verdict"] != "fail"}
    assert passed == {"test_it.py::test_one", "test_it.py::test_two"}
    assert len(lines) == len(tests) + 3
    assert "INTERNALERROR" not in done.stdout.str() + done.stderr.str()
