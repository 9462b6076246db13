"""parallel_apply: nesting, several callers, interrupts and program exit."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_tests import checks
from spec_tests.checks.thread_order import TIMEOUT
from spec_tests.machine.clauses import clause
from spec_tests.machine.processes import run_script
from spec_tests.parallel_apply.run_modules import Lambda, run


def run_nested(target, topology, widths, path=()):
    if not widths:
        return path
    modules = [
        Lambda(run_nested, target, topology, widths[1:], (*path, index))
        for index in range(widths[0])
    ]
    return run(target, topology, modules)


def expected_paths(widths, path=()):
    if not widths:
        return path
    return [expected_paths(widths[1:], (*path, index)) for index in range(widths[0])]


def fail():
    raise ValueError("failure")


@clause("parallel_apply.hazards.nesting")
@given(widths=st.lists(st.integers(1, 3), min_size=2, max_size=4))
def test_modules_may_call_parallel_apply(target, topology, widths):
    assert run_nested(target, topology, widths) == expected_paths(widths)


@clause("parallel_apply.hazards.nesting")
def test_an_error_passes_through_nested_calls(target, topology):
    inner = [Lambda(int), Lambda(fail)]
    outer = [Lambda(int), Lambda(int), Lambda(run, target, topology, inner)]
    with pytest.raises(ValueError) as caught:
        run(target, topology, outer)
    assert str(caught.value).startswith("Caught ValueError in replica 2 on device ")
    assert "Caught ValueError in replica 1 on device " in str(caught.value)


@clause("parallel_apply.hazards.several-callers")
@given(counts=st.lists(st.integers(1, 4), min_size=2, max_size=4))
def test_several_threads_may_call_parallel_apply_concurrently(target, topology, counts):
    barrier = threading.Barrier(sum(counts), timeout=TIMEOUT)

    def call(caller, count):
        return run(
            target, topology, [Lambda(wait_and_return, barrier, (caller, i)) for i in range(count)]
        )

    with ThreadPoolExecutor(len(counts)) as callers:
        found = list(callers.map(call, range(len(counts)), counts))
    checks.same(found, [[(caller, i) for i in range(n)] for caller, n in enumerate(counts)])


@clause("parallel_apply.hazards.several-callers")
def test_an_error_reaches_its_own_caller_only(target, topology):
    barrier = threading.Barrier(4, timeout=TIMEOUT)
    succeeding = [Lambda(wait_and_return, barrier, index) for index in range(2)]
    failing = [Lambda(wait_and_fail, barrier) for _ in range(2)]
    with ThreadPoolExecutor(2) as callers:
        futures = [
            callers.submit(run, target, topology, modules) for modules in (succeeding, failing)
        ]
    checks.same(futures[0].result(), [0, 1])
    assert isinstance(futures[1].exception(), ValueError)


def wait_and_return(barrier, value):
    barrier.wait()
    return value


def wait_and_fail(barrier):
    barrier.wait()
    fail()


@clause("parallel_apply.hazards.interrupted-caller")
@pytest.mark.parametrize("first", ["release.wait(2)", "None"], ids=["working", "waiting"])
def test_an_interrupted_caller_gets_a_keyboard_interrupt(target, topology, first):
    # A target may run the first module in the calling thread. The interrupt arrives while that
    # module runs ("working"), or while the caller waits for the other modules ("waiting"). The
    # sleep gives the caller time to begin to wait; an interrupt before has the same result.
    process = run_script(
        f"""
        started, release = threading.Barrier(3, timeout=5), threading.Event()
        def interrupt():
            started.wait()
            time.sleep(0.2)
            os.kill(os.getpid(), signal.SIGINT)
            release.wait(2)
        def work():
            started.wait()
            release.wait(2)
        try:
            run(Lambda(lambda: (started.wait(), {first})), Lambda(interrupt), Lambda(work))
        except KeyboardInterrupt:
            print("interrupted")
        release.set()
        print(run(Lambda(int, 1), Lambda(int, 2)))
        """,
        target,
        topology,
    )
    assert (process.stdout, process.returncode) == ("interrupted\n[1, 2]\n", 0), process.stderr


@clause("parallel_apply.hazards.end-of-the-program")
@pytest.mark.parametrize("ending", ["sys.exit()", "raise KeyError('uncaught')"])
def test_a_program_exits_with_its_own_status_after_calls(target, topology, ending):
    process = run_script(
        f"""
        import atexit
        run(*[Lambda(int, i) for i in range(8)])
        atexit.register(lambda: print(run(Lambda(int, 3), Lambda(int, 4))))
        try:
            run(Lambda(int, 1), Lambda(int, "x"))
        except ValueError:
            print("caught")
        {ending}
        """,
        target,
        topology,
    )
    assert process.stdout == "caught\n[3, 4]\n", process.stderr
    assert process.returncode == ("uncaught" in ending), process.stderr
