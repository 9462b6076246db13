"""A target that raises, returns or does anything fails its clause; the run goes on."""

import re
import signal

import pytest

from spec_tests.cli.draft import draft
from spec_tests.machine import programs
from spec_tests.machine.tests.small_suite import RECORD, TWO_TESTS
from spec_tests.machine.verdict_file import read

pytest_plugins = ["pytester"]

#: An error or value, each of whose methods in ``names`` raises another error.
HOSTILE = """
import ctypes, itertools, os, sys, threading, time, unittest, warnings
from collections.abc import Sequence
import torch
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
lock = threading.Lock(); lock.acquire()
class Endless(Sequence):
    def __len__(self): return 3
    def __getitem__(self, index): return index
"""
#: For each test that fails with the kind ``error``: a statement, and the error in its fact.
RAISED = {
    "str": ("throw(hostile(refuse, '__str__'))", "Hostile: cannot be shown"),
    "str_exit": ("throw(hostile(exit_, '__str__'))", "Hostile: cannot be shown"),
    "repr": ("throw(hostile(refuse, '__repr__'))", "Hostile: …"),
    "cause": ("chain(hostile(refuse, '__str__', '__repr__'))", "ValueError: cannot be shown"),
    "result_eq": ("assert hostile(refuse, '__eq__', base=object) == 1", "ZeroDivisionError: …"),
    "result_repr": (
        "compare(hostile(exit_, '__repr__', base=object))",
        "SystemExit: cannot be shown",
    ),
    "interrupt": ("throw(KeyboardInterrupt())", "KeyboardInterrupt: …"),
    "exit": ("sys.exit(0)", "SystemExit: …"),
    "pytest_exit": ("pytest.exit('target', returncode=0)", "Exit: target"),
    "skip": ("pytest.skip('target')", "Skipped: target"),
    "skip_as_not_run": ("pytest.skip('not-run: x')", "Skipped: not-run: x"),
    "unittest_skip": ("throw(unittest.SkipTest('target'))", "SkipTest: target"),
    "xfail": ("pytest.xfail('target')", "XFailed: target"),
}
STREAM = "torch.accelerator.set_stream(torch.Stream('sim:1'))"
LEFT = ["state: current device", "state: current stream (sim:1)"]
#: For each other test: a statement, and the kind and the facts of its failure. The stream of the
#: first test is restored, so the second changes it again, and so does the third.
OTHERS = {
    "stream_and_error": (f"{STREAM}; throw(ValueError('x'))", "error", ["error: ValueError: x"]),
    "stream": (STREAM, "state", LEFT),
    "stream_again": (STREAM, "state", LEFT),
    "len": (
        "compare(hostile(refuse, '__len__', base=list))",
        "differs",
        ["output: class", "output: members"],
    ),
    "endless_sequence": ("compare(Endless())", "differs", ["output: class", "output: members"]),
    "accepted": ("checks.same(1, Raised('ValueError', 'x'))", "accepted", ["error: missing"]),
    "refused": ("checks.same(Raised('E', 'row 3 of 4'), 1)", "refused", ["error: E: row"]),
    "endless_iterator": ("compare(itertools.count())", "differs", ["output: class"]),
    "folder": ("os.chdir('/')", "state", ["state: current folder"]),
    # As if it had imported a module.
    "filters": (
        "sys.modules['imported'] = sys; warnings.resetwarnings()",
        "state",
        ["state: warning filters"],
    ),
}
STATEMENTS = OTHERS | {
    name: (statement, "error", [f"error: {text}"]) for name, (statement, text) in RAISED.items()
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
#: A test that changes its drawn value.
DRAWN = """
@clause("a.one")
@given(value=st.builds(list))
def test_drawn(target, value):
    value.append(hostile(refuse, '__repr__', base=object))
    raise ValueError('the value is full')
"""


def test_whatever_a_target_does_is_a_failure_that_a_register_can_record(run_suite, pytester):
    # As in a worker: with Python's own handler, a KeyboardInterrupt is that of the user.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    thrown = [
        name for name, (statement, *_) in RAISED.items() if statement[:5] in ("throw", "chain")
    ]
    body = HOSTILE + "".join(TEST.format(name, case[0]) for name, case in STATEMENTS.items())
    body += "".join(GIVEN.format(name, RAISED[name][0]) for name in thrown)
    body += DRAWN + TWO_TESTS.format(one="True", two="pass")
    path, register = pytester.path / "verdicts.jsonl", pytester.path / "drafted.toml"
    run_suite(body, f"--verdicts={path}")
    found = {each.test.partition("::test_")[2]: each for each in read(path)}
    assert [found.pop(name).verdict for name in ("one", "two")] == ["pass", "pass"]
    expected = STATEMENTS | {f"given_{name}": STATEMENTS[name] for name in thrown}
    expected["drawn"] = DRAWN, "error", ["error: ValueError: the value is full"]
    assert {name: _describe(each) for name, each in found.items()} == {
        name: ("fail", kind, facts) for name, (_, kind, facts) in expected.items()
    }
    register.write_text(draft(read(path), suite=pytester.path))
    done = run_suite(body, f"--divergences={register}", f"--verdicts={path}")
    assert done.ret == pytest.ExitCode.OK, done.stdout.str()
    drafted = draft(read(path), register_file=register, suite=pytester.path)
    assert drafted == register.read_text()


def test_a_failure_names_the_line_of_the_target_that_raised_an_error(run_suite, pytester):
    path = pytester.path / "verdicts.jsonl"
    body = TWO_TESTS.format(one="True", two="target.comm.scatter(None, [0])")
    run_suite(body, f"--verdicts={path}")
    (text,) = [each.failure.text for each in read(path) if each.failure]
    assert re.search(r"\nat impl/\w+\.py:\d+$", text)


def test_an_error_of_the_suite_is_not_reported_as_one_of_the_target(run_suite, monkeypatch):
    monkeypatch.setattr(programs, "drawn_arguments", None)
    result = run_suite(TWO_TESTS.format(one="False", two="pass"))
    assert result.ret == pytest.ExitCode.INTERNAL_ERROR


def _describe(test):
    """Return the verdict of a test, and the kind and the facts of its failure."""
    found = test.failure
    return (test.verdict, *((found.kind, found.fact_texts) if found else ()))


#: A test that leaves an endless thread, one that never returns, and one that ends its process. The
#: first one imports all modules, because the limit of the second one is short.
ENDING = """
@clause("a.two")
def test_thread(target): threading.Thread(target=time.sleep, args=(1e6,)).start()
@clause("a.one")
@pytest.mark.timeout(5)
@given(number=st.just(7))
def test_hangs(target, number): {}
@clause("a.one")
def test_ends(target): os._exit(0)
"""


@pytest.mark.parametrize(
    "hang",
    [
        "threading.Thread(target=lock.acquire, name='other').start(); lock.acquire()",
        # It keeps the interpreter lock.
        pytest.param("ctypes.PyDLL(None).sleep(1000)", marks=pytest.mark.slow),
    ],
)
def test_a_test_that_ends_its_process_or_hangs_is_a_failure_that_a_register_can_record(
    run_suite_in_new_process, pytester, hang
):
    path = pytester.path / "verdicts.jsonl"
    facts = {"ends": "process: ended", "hangs": "error: RuntimeError: other"}
    records = (RECORD.format(test=f"test_{name}", fact=fact) for name, fact in facts.items())
    pytester.path.joinpath("own.toml").write_text("".join(records))
    # The run ends with the second worker.
    options = "-n1", "--max-worker-restart=1", "--divergences=own.toml", f"--verdicts={path}"
    done = run_suite_in_new_process(HOSTILE + ENDING.format(hang), *options)
    assert "INTERNALERROR" not in done.stdout.str() + done.stderr.str()
    found = {each.test.partition("::test_")[2]: each for each in read(path)}
    assert {name: _describe(each) for name, each in found.items()} == {
        "ends": ("known", "ended", ["process: ended"]),
        "hangs": ("fail", "time", ["process: time limit"]),
        "thread": ("pass",),
    }
    # The drawn arguments, and the stacks of the test and of the thread that it has started.
    text = found["hangs"].failure.text
    assert ("number = 7" in text) == ("other" in hang)
    assert "test_it.py" in text
    assert ("other:" in text) == ("other" in hang)
