"""impl._threads: forked processes, and the end of a process with worker threads."""

import signal
from pathlib import Path

import pytest

from impl_tests.samples import run_python

#: The code of a function that uses ``depth`` worker threads at the same time.
NESTED = """
def nested(depth):
    return depth and 1 + _threads.start(lambda: nested(depth - 1)).wait()
"""


#: The first statements of each script.
PROLOGUE = """
import os, signal, sys, threading, time, warnings
from impl import _threads
warnings.simplefilter("ignore", DeprecationWarning)
# A shell makes its background processes ignore SIGINT.
signal.signal(signal.SIGINT, signal.default_int_handler)
"""


def run_script(script):
    return run_python(PROLOGUE + script)


def test_fork_while_functions_run_does_not_deadlock():
    completed = run_script(
        NESTED
        + """
assert nested(5) == 5
release = threading.Event()
busy = [_threads.start(release.wait) for _ in range(3)]
child = os.fork()
if child == 0:
    sys.exit(0 if nested(5) == 5 else 1)
print(os.waitpid(child, 0)[1])
release.set()
print([each.wait() for each in busy], nested(5))
"""
    )
    assert (completed.stdout, completed.stderr) == ("0\n[True, True, True] 5\n", "")


def test_function_in_a_worker_can_fork():
    completed = run_script(
        NESTED
        + """
def fork():
    child = os.fork()
    if child == 0:
        os._exit(0 if nested(5) == 5 else 1)
    return os.waitpid(child, 0)[1]

print(_threads.start(fork).wait(), nested(5))
"""
    )
    assert (completed.stdout, completed.stderr) == ("0 5\n", "")


def test_interrupted_program_ends_while_threads_are_idle():
    interrupt = "os.kill(os.getpid(), signal.SIGINT)"
    completed = run_script("[_threads.start(int).wait() for _ in range(3)]\n" + interrupt)
    assert completed.stdout == ""
    assert "KeyboardInterrupt" in completed.stderr.splitlines()[-1]
    assert completed.returncode == -signal.SIGINT


def test_program_ends_after_running_functions():
    completed = run_script('_threads.start(lambda: (time.sleep(0.5), print("ended")))')
    assert (completed.stdout, completed.stderr, completed.returncode) == ("ended\n", "", 0)


@pytest.mark.parametrize("lock_held", [False, True], ids="lock_held={}".format)
def test_worker_that_forked_ends_in_the_child(lock_held):
    completed = run_script(
        f"""
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
pending = _threads.start(lambda: known.wait() and fork())
known.set()
print(pending.wait())
"""
    )
    assert (completed.stdout, completed.stderr) == ("7\n", "")


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="counts the threads in /proc")
def test_replicas_on_the_cpu_leave_no_openmp_threads():
    # Idle threads of OpenMP slow down every later operator of the calling thread.
    completed = run_script(
        """
import torch, impl

def count_openmp_threads():
    # Python's threads are not counted: a worker whose task the caller has claimed stays idle, and
    # has no OpenMP threads.
    return len(os.listdir("/proc/self/task")) - threading.active_count()

torch.set_num_threads(2)
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
    )
    assert (completed.stdout, completed.stderr) == ("True 0\n", "")
