"""The fault harness finds wrong versions of impl, and a seed repeats a fault."""

import pytest

from impl_tests.faults.table import Tally
from impl_tests.faults.trial import TrialResult
from impl_tests.faults.verdicts import VERDICTS, Finding
from impl_tests.samples import run_python

#: Prints bad verdicts, and stops at one of the wanted verdicts.
PROGRAM = """
import contextlib, gc, threading
from impl_tests.faults.target import prepare
from impl_tests.faults.trial import run_trials
from impl_tests.faults.verdicts import BAD

target = prepare("impl")
{change}
for result in run_trials(target, ["{kind}"], range({count}), processes=1, limit={limit}):
    bad = [each.verdict for each in result.findings if each.verdict in BAD]
    if bad:
        print(bad[0], result.seed, result.log.splitlines()[0], result.findings)
    if bad and bad[0] in {wanted}:
        break
"""
#: Wrong versions of impl -> the kind of the faults, and the verdicts of which one must be found.
CHANGES = {
    "an-error-does-not-name-the-replica": (
        "exception",
        """
def reraise(error, location):
    raise error
target.parallel_apply.reraise = reraise
""",
        ("other error",),
    ),
    "an-error-is-lost": (
        "exception",
        """
def lose_errors(calls, modules, *, in_turn):
    outcomes = run_calls(calls, modules, in_turn=in_turn)
    results = [each for each in outcomes if not hasattr(each, "is_interrupt")]
    return [results[0] if hasattr(each, "is_interrupt") else each for each in outcomes]
run_calls, target.parallel_apply._run_calls = target.parallel_apply._run_calls, lose_errors
""",
        ("lost", "wrong result"),
    ),
    "the-collector-stays-off": (
        "exception",
        """
@contextlib.contextmanager
def pause_gc():
    gc.disable()
    yield
    gc.enable()
target.replicate.pause_gc = pause_gc
""",
        ("state left",),
    ),
    "gradients-are-doubled": (
        "exception",
        """
import impl.functions
def double(*args):
    return tuple(2 * each for each in original(*args))
original = impl.functions.reduce_add_coalesced
impl.functions.reduce_add_coalesced = double
""",
        ("wrong result",),
    ),
    "a-lack-of-memory-has-another-class": (
        "memory",
        """
def copy(*args, **kwargs):
    try:
        return original(*args, **kwargs)
    except RuntimeError as error:
        raise ValueError(str(error))
original, target.comm.detached_copies = target.comm.detached_copies, copy
""",
        ("other error",),
    ),
    "a-refused-thread-has-another-error": (
        "thread",
        """
def start(call):
    try:
        return original(call)
    except RuntimeError:
        raise OSError("no thread")
original, target.parallel_apply.start = target.parallel_apply.start, start
""",
        ("other error",),
    ),
    "a-wait-cannot-be-interrupted": (
        "blocked",
        """
def wait(self):
    while True:
        try:
            return original(self)
        except KeyboardInterrupt:
            pass
from impl._threads.pool import Future
original, Future.wait = Future.wait, wait
""",
        ("hang",),
    ),
    "a-call-works-in-the-main-thread-only": (
        "surroundings",
        """
def apply(*args, **kwargs):
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("not the main thread")
    return original(*args, **kwargs)
original, target.parallel_apply.parallel_apply = target.parallel_apply.parallel_apply, apply
""",
        ("other error",),
    ),
}


def find_bad_lines(kind, change, count, wanted=()):
    limit = 5 if "hang" in wanted else 60
    program = PROGRAM.format(kind=kind, change=change, count=count, wanted=wanted, limit=limit)
    completed = run_python(program)
    assert completed.returncode == 0, completed.stderr
    return completed.stdout.splitlines()


@pytest.mark.parametrize(("kind", "count"), [("exception", 60), ("interrupt", 12), ("memory", 12)])
def test_100_faults_of_each_frequent_kind_have_no_bad_verdict(kind, count):
    assert find_bad_lines(kind, "", count) == []


@pytest.mark.parametrize(("kind", "count"), [("thread", 20), ("blocked", 10), ("surroundings", 5)])
def test_some_faults_of_each_other_kind_have_no_bad_verdict(kind, count):
    assert find_bad_lines(kind, "", count) == []


@pytest.mark.parametrize("name", CHANGES)
def test_a_wrong_version_of_impl_is_found(name):
    kind, change, wanted = CHANGES[name]
    assert any(line.startswith(wanted) for line in find_bad_lines(kind, change, 300, wanted))


def test_a_seed_repeats_the_fault():
    kind, change, wanted = CHANGES["the-collector-stays-off"]
    first = find_bad_lines(kind, change, 300, wanted)[-1]
    seed = int(first.split(" ")[2])
    # The last line is that of the seed, although the earlier seeds are not run.
    count = f"{seed}, {seed} + 1"
    program = PROGRAM.format(kind=kind, change=change, count=count, wanted=(), limit=60)
    assert run_python(program).stdout.splitlines() == [first]


def test_the_table_counts_verdicts_and_names_the_seed_of_bad_ones():
    tally = Tally()
    findings = [Finding("error", "interrupt"), Finding("lost", "interrupt", "detail")]
    texts = [*tally.add(TrialResult(7, "interrupt", findings, "log", 1.0))]
    assert (tally.bad, tally.injected) == (1, 2)
    assert "--kinds interrupt --seed 7 --count 1" in texts[0]
    assert tally.format().splitlines()[0].split("  ")[-1].strip() == [*VERDICTS][-1]


HANG = """
from impl_tests.faults.target import prepare
from impl_tests.faults.trial import KINDS, run_trials
from impl_tests.faults.verdicts import Finding
import os, threading

def {name}(target, rng):
    {body}
    yield Finding("right", "x")

KINDS["{name}"] = {name}
for result in run_trials(prepare("impl"), ["{name}"], [1], processes=1, limit=2):
    print(result.findings[0].verdict, "in {name}" in result.findings[0].detail)
"""


@pytest.mark.parametrize(
    ("name", "body", "text"),
    [("hang", "threading.Event().wait()", "hang True"), ("crash", "os.abort()", "crash True")],
)
def test_a_process_that_hangs_or_dies_is_found_with_its_stacks(name, body, text):
    completed = run_python(HANG.format(name=name, body=body))
    assert completed.stdout.strip() == text, completed.stderr
