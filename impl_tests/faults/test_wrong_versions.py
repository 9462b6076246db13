"""The fault harness finds wrong versions of impl, and a seed repeats a fault.

``tox -e faults`` runs these tests. The gate does not, because they take minutes.
"""

import pytest

from impl_tests.faults.programs import PROGRAM, find_bad_lines
from impl_tests.samples import run_python

pytestmark = pytest.mark.machinery

#: Name of a wrong version of impl -> the kind of faults to inject, the statements that change
#: impl, and the verdicts of which at least one must occur.
CHANGES = {
    "an-error-does-not-name-the-replica": (
        "exception",
        """
def reraise(error, location):
    raise error
target.submodule("parallel_apply").reraise = reraise
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
module = target.submodule("parallel_apply")
run_calls, module._run_calls = module._run_calls, lose_errors
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
target.submodule("replicate").pause_gc = pause_gc
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
module = target.submodule("comm")
original, module.detached_copies = module.detached_copies, copy
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
module = target.submodule("parallel_apply")
original, module.start = module.start, start
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
module = target.submodule("parallel_apply")
original, module.parallel_apply = module.parallel_apply, apply
""",
        ("other error",),
    ),
}


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
    # Run only this seed: it must print the same line as after the earlier seeds.
    count = f"{seed}, {seed} + 1"
    program = PROGRAM.format(kind=kind, change=change, count=count, wanted=(), limit=60)
    assert run_python(program).stdout.splitlines() == [first]
