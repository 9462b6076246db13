"""A target that raises, returns or leaves behind anything fails its clause; the run goes on."""

import json

import pytest

from spec_tests.harness.tests.small_suite import TWO_TESTS

pytestmark = pytest.mark.slow
pytest_plugins = ["pytester"]

#: An error, each of whose methods in ``names`` raises another one.
HOSTILE = """
import itertools, os, sys, threading, time, unittest
from collections.abc import Sequence
from hypothesis import given, strategies as st
from spec_tests.harness.compare import checks
from spec_tests.harness.compare.snapshot import snapshot

def refuse(self, *args): raise ZeroDivisionError
def recurse(self, *args): return recurse(self)
def exit_(self, *args): sys.exit()
def hostile(method, *names, base=RuntimeError):
    body = {name: method for name in names}
    if "__class__" in body: body["__class__"] = property(method)
    return type("Hostile", (base,), body)()
def throw(error): raise error
def chain(error): raise ValueError("plain") from error
def compare(value): checks.same(snapshot(value, {}), snapshot([1], {}))
class Endless(Sequence):
    def __len__(self): return 3
    def __getitem__(self, index): return index
"""
STATEMENTS = {
    "str": "throw(hostile(refuse, '__str__'))",
    "str-recursion": "throw(hostile(recurse, '__str__', '__repr__', base=TypeError))",
    "str-exit": "throw(hostile(exit_, '__str__'))",
    "repr": "throw(hostile(refuse, '__repr__'))",
    "class": "throw(hostile(refuse, '__class__'))",
    "cause": "chain(hostile(refuse, '__str__', '__repr__', '__class__'))",
    "surrogate": "throw(RuntimeError(chr(0xd800)))",
    "result-eq": "assert hostile(refuse, '__eq__', '__repr__', base=object) == 1",
    "result-repr": "compare(hostile(exit_, '__repr__', base=object))",
    "result-class": "compare(hostile(refuse, '__class__', base=object))",
    "result-len": "compare(hostile(refuse, '__len__', base=list))",
    "argument-repr": "(lambda x: 1 / 0)(hostile(exit_, '__repr__', base=object))",
    "endless-sequence": "compare(Endless())",
    "endless-iterator": "compare(itertools.count())",
    "interrupt": "throw(KeyboardInterrupt())",
    "exit": "sys.exit(0)",
    "pytest-exit": "pytest.exit('target', returncode=0)",
    "skip": "pytest.skip('target')",
    "unittest-skip": "throw(unittest.SkipTest('target'))",
    "xfail": "pytest.xfail('target')",
    "stdout": "sys.stdout.close(); sys.stderr.close()",
    "descriptors": "os.close(1); os.close(2)",
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
@given(number=st.integers())
def test_given_{}(target, number): {}
"""


def test_whatever_a_target_does_is_a_verdict(run_suite, pytester):
    tests = [TEST.format(name.replace("-", "_"), each) for name, each in STATEMENTS.items()]
    raised = [each for each in STATEMENTS.values() if each.startswith(("throw", "chain"))]
    tests += [GIVEN.format(number, each) for number, each in enumerate(raised)]
    path = pytester.path / "verdicts.jsonl"
    body = HOSTILE + "".join(tests) + TWO_TESTS.format(one="True", two="pass")
    done = run_suite(body, "-n1", f"--verdicts={path}")
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    _, *lines = [json.loads(line) for line in path.read_text().splitlines()]
    passed = {line["test"] for line in lines if line["verdict"] != "fail"}
    assert passed == {"test_it.py::test_one", "test_it.py::test_two"}
    assert len(lines) == len(tests) + 2
    assert "INTERNALERROR" not in done.stdout.str() + done.stderr.str()
