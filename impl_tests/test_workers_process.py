"""impl._workers where the process forks or ends."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
#: Seconds after which a script that should end at once is taken to hang.
PATIENCE = 60

NESTED = """
def nested(depth):
    return depth and 1 + _workers.start(lambda: nested(depth - 1)).wait()
"""


def run_script(script, *, patience=PATIENCE):
    """Run ``script`` in an interpreter of its own."""
    prologue = (
        "import os, signal, sys, threading, time\nfrom impl import _workers\n"
        # A job in the background ignores it.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    )
    return subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", prologue + script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=patience,
    )


def test_threads_are_started_anew_after_a_fork():
    done = run_script(
        NESTED
        + """
assert nested(5) == 5
child = os.fork()
if child == 0:
    os._exit(0 if nested(5) == 5 else 1)
print(os.waitpid(child, 0)[1], nested(5))
"""
    )
    assert (done.stdout, done.stderr) == ("0 5\n", "")


def test_a_fork_while_functions_run_is_no_trap():
    done = run_script(
        NESTED
        + """
release = threading.Event()
busy = [_workers.start(release.wait) for _ in range(3)]
child = os.fork()
if child == 0:
    sys.exit(0 if nested(5) == 5 else 1)
print(os.waitpid(child, 0)[1])
release.set()
print([each.wait() for each in busy])
"""
    )
    assert (done.stdout, done.stderr) == ("0\n[True, True, True]\n", "")


def test_a_function_may_fork():
    done = run_script(
        NESTED
        + """
def fork():
    child = os.fork()
    if child == 0:
        os._exit(0 if nested(5) == 5 else 1)
    return os.waitpid(child, 0)[1]

print(_workers.start(fork).wait(), nested(5))
"""
    )
    assert (done.stdout, done.stderr) == ("0 5\n", "")


@pytest.mark.parametrize("ending", ["", "sys.exit(0)", "os.kill(os.getpid(), signal.SIGINT)"])
def test_the_program_ends_with_threads_waiting(ending):
    done = run_script("[_workers.start(int).wait() for _ in range(3)]\n" + ending)
    assert done.stdout == ""
    assert done.stderr == "" or "KeyboardInterrupt" in done.stderr.splitlines()[-1]
    assert done.returncode == (-signal.SIGINT if "SIGINT" in ending else 0)


def test_the_program_ends_after_what_still_runs():
    done = run_script(
        """
_workers.start(lambda: (time.sleep(0.5), print("ended")))
"""
    )
    assert (done.stdout, done.stderr, done.returncode) == ("ended\n", "", 0)


def test_functions_may_be_started_while_the_program_ends():
    done = run_script(
        """
import atexit
_workers.start(int).wait()
atexit.register(lambda: print(_workers.start(int).wait()))
"""
    )
    assert (done.stdout, done.stderr, done.returncode) == ("0\n", "", 0)


def test_importing_starts_no_thread():
    done = run_script("import impl\nprint(threading.active_count())")
    assert done.stdout == "1\n"


HOLD = """
held, over = threading.Event(), threading.Event()

def hold():
    with _workers._pool._lock:
        held.set()
        over.wait()
"""


@pytest.mark.parametrize("is_held", [False, True], ids="held={}".format)
def test_a_thread_that_forked_ends_in_the_child_whoever_held_the_lock(is_held):
    done = run_script(
        HOLD
        + f"""
def watch(worker):
    pending.wait()
    worker.join()
    os._exit(7)  # The end of a thread that forked may crash PyTorch where it is the last.

def fork():
    if {is_held}:
        threading.Thread(target=hold).start()
        held.wait()
    child = os.fork()
    over.set()
    if child == 0:
        threading.Thread(target=watch, args=[threading.current_thread()]).start()
    return child and os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

known = threading.Event()
pending = _workers.start(lambda: known.wait() and fork())
known.set()
print(pending.wait())
"""
    )
    assert (done.stdout, done.stderr) == ("7\n", "")


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="counts the threads in /proc")
def test_replicas_on_the_cpu_leave_no_openmp_threads():
    # Idle pools slow down every later operator of the calling thread.
    done = run_script(
        """
import torch, impl

def count_native_threads():
    return len(os.listdir("/proc/self/task"))

torch.set_num_threads(2)
module, x = torch.nn.Softmax(dim=1), torch.rand(2048, 2048)
module(x)  # The calling thread keeps a pool, too.
before = count_native_threads()
module.register_forward_hook(lambda *_: peaks.append(count_native_threads()))
peaks = []
impl.DataParallel(module, ["cpu"] * 4)(x)
deadline = time.monotonic() + 30
while count_native_threads() > before and time.monotonic() < deadline:
    time.sleep(0.01)
print(max(peaks) > before, count_native_threads() - before)
"""
    )
    assert (done.stdout, done.stderr) == ("True 0\n", "")
