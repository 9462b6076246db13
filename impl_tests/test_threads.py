"""impl._threads: worker threads, their state, reuse and end; forks and the end of a process."""

import os
import signal
import threading
from pathlib import Path

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.overrides import BaseTorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from impl import _threads
from impl._thread_locals import SINGLE_USE_THREADS, locals_counter
from impl._thread_state import CallerState
from spec_tests.checks.leaks import wait_until
from spec_tests.machine import process_state
from spec_tests.machine.devices import not_run
from spec_tests.machine.processes import run_program

#: Seconds after which a wait that should end immediately counts as a hang.
TIMEOUT = 20


@pytest.fixture
def pool():
    pool = _threads._Pool()
    yield pool
    pool.close()


@pytest.fixture
def reusing_pool(monkeypatch, pool):
    """A pool that reuses its threads, also on a free-threaded Python."""
    if process_state.is_free_threaded():
        monkeypatch.setattr(_threads, "SINGLE_USE_THREADS", False)
        monkeypatch.setattr(_threads, "locals_counter", lambda: int)
    return pool


def alive(pool):
    return [each.thread for each in pool._workers if each.thread.is_alive()]


def all_end(threads):
    for thread in threads:
        thread.join(TIMEOUT)
    return not any(thread.is_alive() for thread in threads)


def test_second_call_reuses_an_idle_thread(pool):
    first = pool.start(threading.get_ident).wait()
    assert [pool.start(threading.get_ident).wait() for _ in range(20)] == [first] * 20


def test_a_thread_computes_on_the_device_of_its_last_call_again(reusing_pool, topology):
    devices = topology.devices
    states = CallerState.read(devices).states(devices)
    barrier = threading.Barrier(len(devices), timeout=TIMEOUT)

    def run(order):
        calls = {i: reusing_pool.start(wait_and_read_thread, states[i]) for i in order}
        return {i: call.wait() for i, call in calls.items()}

    def wait_and_read_thread():
        barrier.wait()
        return threading.get_ident()

    first = run(range(len(devices)))
    assert [run(reversed(range(len(devices)))) for _ in range(5)] == [first] * 5


def test_number_of_idle_threads_is_limited(reusing_pool):
    barrier = threading.Barrier(_threads.MAX_IDLE + 5, timeout=TIMEOUT)
    calls = [reusing_pool.start(barrier.wait) for _ in range(barrier.parties)]
    for call in calls:
        call.wait()
    wait_until(lambda: len(alive(reusing_pool)) <= _threads.MAX_IDLE)
    assert len(reusing_pool._idle) == len(alive(reusing_pool)) == _threads.MAX_IDLE


#: For each name of state that a thread keeps: a function that returns a context manager for it.
MODES = {
    "function mode": BaseTorchFunctionMode,
    "dispatch mode": TorchDispatchMode,
    "disabled overrides": torch._C.DisableTorchFunctionSubclass,
    "saved tensors": lambda: saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor),
    "inference mode": torch.inference_mode,
    "default device": lambda: torch.device("meta"),
}


@pytest.mark.parametrize("make", MODES.values(), ids=MODES)
def test_thread_whose_function_leaves_a_mode_active_ends(pool, make):
    kept = []

    def enter():
        kept.append(make())
        kept[0].__enter__()
        return threading.current_thread()

    assert all_end([pool.start(enter).wait()])
    states = pool.start(
        lambda: (torch.is_inference_mode_enabled(), torch._C._len_torch_function_stack())
    )
    assert states.wait() == (False, 0)


def test_pool_works_after_the_start_of_a_thread_has_failed(pool, monkeypatch):
    pool.start(int).wait()

    def raise_error(thread):
        raise RuntimeError("can't start new thread")

    release = threading.Event()
    busy = pool.start(release.wait)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", raise_error)
        with pytest.raises(RuntimeError):
            pool.start(int)
    release.set()
    assert busy.wait()
    assert os.getpid() == pool.start(os.getpid).wait()


def test_a_thread_whose_start_is_interrupted_ends(pool, monkeypatch):
    started, start = [], threading.Thread.start

    def start_and_interrupt(thread):
        start(thread)
        started.append(thread)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start_and_interrupt)
        with pytest.raises(KeyboardInterrupt):
            pool.start(int)
    assert started
    assert all_end(started)
    assert os.getpid() == pool.start(os.getpid).wait()


def test_a_worker_that_an_interrupted_call_has_taken_ends_with_the_pool(reusing_pool):
    class Interrupted(list):
        def remove(self, worker):
            super().remove(worker)
            raise KeyboardInterrupt

    reusing_pool.start(int).wait()
    reusing_pool._idle = Interrupted(reusing_pool._idle)
    with pytest.raises(KeyboardInterrupt):
        reusing_pool.start(int)
    closing = threading.Thread(target=reusing_pool.close, daemon=True)
    closing.start()
    assert all_end([closing])


@pytest.mark.skipif(SINGLE_USE_THREADS, reason="not-run: a worker runs one function")
@pytest.mark.parametrize(
    ("slot", "num_threads", "is_reused"), [(None, 1, True), (None, 2, False), (0, 2, True)]
)
def test_a_worker_that_may_have_openmp_threads_is_not_reused(
    topology, slot, num_threads, is_reused
):
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        devices = [topology.device(slot)]
        (state,) = CallerState.read(devices).states(devices)
        first, second = (
            _threads.start_in_thread(threading.current_thread, state).wait() for _ in range(2)
        )
        assert (second is first) == is_reused
    finally:
        torch.set_num_threads(before)


#: The first statements of each program. ``nested`` uses ``depth`` worker threads at the same time.
PROLOGUE = """
import os, signal, sys, threading, time, warnings
from impl import _threads
warnings.simplefilter("ignore", DeprecationWarning)
# A shell makes its background processes ignore SIGINT.
signal.signal(signal.SIGINT, signal.default_int_handler)

def nested(depth):
    return depth and 1 + _threads.start_in_thread(lambda: nested(depth - 1)).wait()
"""
FORK_WHILE_FUNCTIONS_RUN = """
assert nested(5) == 5
release = threading.Event()
busy = [_threads.start_in_thread(release.wait) for _ in range(3)]
child = os.fork()
if child == 0:
    sys.exit(0 if nested(5) == 5 else 1)
print(os.waitpid(child, 0)[1])
release.set()
print([each.wait() for each in busy], nested(5))
"""
FORK_IN_A_WORKER = """
def fork():
    child = os.fork()
    if child == 0:
        os._exit(0 if nested(5) == 5 else 1)
    return os.waitpid(child, 0)[1]

print(_threads.start_in_thread(fork).wait(), nested(5))
"""
WORKER_ENDS_IN_THE_CHILD = """
held, forked = threading.Event(), threading.Event()

def hold():
    with _threads._pool._lock:
        held.set()
        forked.wait()

def watch(worker):
    pending.wait()
    worker.join()
    os._exit(7)  # PyTorch may crash if the forking thread is the last one to end.

def fork():
    if {lock_held}:
        threading.Thread(target=hold).start()
        held.wait()
    child = os.fork()
    forked.set()
    if child == 0:
        threading.Thread(target=watch, args=[threading.current_thread()]).start()
    return child and os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

known = threading.Event()
pending = _threads.start_in_thread(lambda: known.wait() and fork())
known.set()
print(pending.wait())
"""
#: Idle threads of OpenMP slow down every later operator of the calling thread.
NO_OPENMP_THREADS_STAY = """
import torch, impl

def count_openmp_threads():
    # Python's threads are not counted: an idle worker has no OpenMP threads.
    return len(os.listdir("/proc/self/task")) - threading.active_count()

torch.set_num_threads(8)  # Two for each replica.
module, x = torch.nn.Softmax(dim=1), torch.rand(2048, 2048)
module(x)  # Creates the OpenMP pool of the calling thread.
before = count_openmp_threads()
module.register_forward_hook(lambda *_: peaks.append(count_openmp_threads()))
peaks = []
impl.DataParallel(module, ["cpu"] * 4)(x)
deadline = time.monotonic() + 30
while count_openmp_threads() > before and time.monotonic() < deadline:
    time.sleep(0.01)
print(max(peaks) > before, count_openmp_threads() - before)
"""
#: For each fact that a program shows: the program, and the text that it prints.
PROGRAMS = {
    "a fork while functions run does not deadlock": (
        FORK_WHILE_FUNCTIONS_RUN,
        "0\n[True, True, True] 5\n",
    ),
    "a function in a worker can fork": (FORK_IN_A_WORKER, "0 5\n"),
    "a worker that forked ends in the child": (
        WORKER_ENDS_IN_THE_CHILD.format(lock_held=False),
        "7\n",
    ),
    "a worker that forked ends in the child, with the lock held": (
        WORKER_ENDS_IN_THE_CHILD.format(lock_held=True),
        "7\n",
    ),
}
if Path("/proc/self/task").is_dir():
    PROGRAMS["replicas on the CPU leave no OpenMP threads"] = NO_OPENMP_THREADS_STAY, "True 0\n"


@pytest.mark.parametrize(("program", "printed"), PROGRAMS.values(), ids=PROGRAMS)
def test_a_program_with_workers_shows_that(program, printed):
    completed = run_program(PROLOGUE + program)
    assert (completed.stdout, completed.stderr) == (printed, "")


def test_interrupted_program_ends_while_threads_are_idle():
    completed = run_program(
        f"{PROLOGUE}[_threads.start_in_thread(int).wait() for _ in range(3)]\n"
        "os.kill(os.getpid(), signal.SIGINT)"
    )
    assert completed.stdout == ""
    assert "KeyboardInterrupt" in completed.stderr.splitlines()[-1]
    assert completed.returncode == -signal.SIGINT


def test_an_error_that_cannot_be_captured_does_not_block_the_caller(monkeypatch):
    def refuse(_):
        raise LookupError("refused")

    monkeypatch.setattr(_threads, "capture", refuse)
    assert type(_threads.start_in_thread(int).wait().pop()) is LookupError


def test_locals_counter_counts_a_new_local_until_it_is_deleted():
    if SINGLE_USE_THREADS:
        not_run("a free-threaded Python cannot count locals without stopping all threads")
    count = locals_counter()
    before, local = count(), threading.local()
    local.value = True
    assert count() > before
    del local
    assert count() == before
