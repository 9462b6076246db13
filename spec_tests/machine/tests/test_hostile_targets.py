"""A target that raises or returns anything fails its clause; the run goes on."""

import json

import pytest

from spec_tests.cli.draft import draft
from spec_tests.machine.tests.small_suite import TWO_TESTS
from spec_tests.machine.verdict_file import read

pytestmark = pytest.mark.slow
pytest_plugins = ["pytester"]

#: An error or value, each of whose methods in ``names`` raises another error.
HOSTILE = """
import ctypes, itertools, os, sys, threading, time, unittest
from collections.abc import Sequence
from hypothesis import given, strategies as st
from spec_tests import checks
from spec_tests.checks.outcome import Raised
from spec_tests.checks.snapshot import snapshot

def refuse(self, *args): raise ZeroDivisionError
def exit_(self, *args): sys.exit()
def hostile(method, *names, base=RuntimeError):
    return type("Hostile", (base,), dict.fromkeys(names, method))()
def throw(error): raise error
def chain(error): raise ValueError("plain") from error
def compare(value): checks.same(snapshot(value, {}), snapshot([1], {}))
class Endless(Sequence):
    def __len__(self): return 3
    def __getitem__(self, index): return index
"""
STATEMENTS = {
    "str": "throw(hostile(refuse, '__str__'))",
    "str_exit": "throw(hostile(exit_, '__str__'))",
    "repr": "throw(hostile(refuse, '__repr__'))",
    "cause": "chain(hostile(refuse, '__str__', '__repr__'))",
    "result_eq": "assert hostile(refuse, '__eq__', '__repr__', base=object) == 1",
    "result_repr": "compare(hostile(exit_, '__repr__', base=object))",
    "result_len": "compare(hostile(refuse, '__len__', base=list))",
    "endless_sequence": "compare(Endless())",
    "accepted": "checks.same(snapshot(1, {}), Raised('ValueError', 'x'))",
    "endless_iterator": "compare(itertools.count())",
    "interrupt": "throw(KeyboardInterrupt())",
    "exit": "sys.exit(0)",
    "pytest_exit": "pytest.exit('target', returncode=0)",
    "skip": "pytest.skip('target')",
    "unittest_skip": "throw(unittest.SkipTest('target'))",
    "xfail": "pytest.xfail('target')",
    "folder": "os.chdir('/')",
    "endless_thread": "threading.Thread(target=time.sleep, args=(1e6,)).start(); assert 0",
    "ends_process": "os._exit(0)",
}
TEST = """
@clause("a.one")
def test_{}(target): {}
"""
#: The second test hangs in C and keeps the interpreter lock.
HANG = """
@clause("a.one")
@pytest.mark.timeout(1)
def test_hang(target): threading.Event().wait()
@clause("a.one")
@pytest.mark.timeout(1)
def test_hang_in_c(target): ctypes.PyDLL(None).sleep(1000)
"""
GIVEN = """
@clause("a.one")
@given(number=st.integers())
def test_given_{}(target, number): {}
"""


def test_whatever_a_target_does_is_a_verdict_that_a_register_can_record(
    run_suite_in_new_process, pytester
):
    tests = [TEST.format(*each) for each in STATEMENTS.items()]
    tests += [
        GIVEN.format(*each)
        for each in STATEMENTS.items()
        if each[1].startswith(("throw", "chain"))
    ]
    tests.append(HANG)  # A worker that has imported all modules runs them: their limit is short.
    path = pytester.path / "verdicts.jsonl"
    body = HOSTILE + "".join(tests) + TWO_TESTS.format(one="True", two="pass")
    done = run_suite_in_new_process(body, "-n1", f"--verdicts={path}")
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    _, *lines = [json.loads(line) for line in path.read_text().splitlines()]
    passed = {line["test"] for line in lines if line["verdict"] != "fail"}
    assert passed == {"test_it.py::test_one", "test_it.py::test_two"}
    assert len(lines) == len(tests) + 3
    assert "INTERNALERROR" not in done.stdout.str() + done.stderr.str()
    register = pytester.path / "drafted.toml"
    register.write_text(draft(read(path), suite=pytester.path))
    done = run_suite_in_new_process(body, "-n1", f"--divergences={register}", f"--verdicts={path}")
    assert done.ret == pytest.ExitCode.OK, done.stdout.str()
    verdicts = {test.test: test.verdict for test in read(path)}
    assert verdicts["test_it.py::test_hang"] == verdicts["test_it.py::test_hang_in_c"] == "known"
    drafted = draft(read(path), register_file=register, suite=pytester.path)
    assert drafted == register.read_text()
