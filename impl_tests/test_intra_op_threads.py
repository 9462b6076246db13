"""impl._intra_op_threads: replicas on the CPU share the intra-op threads of their caller.

Each program runs in a process of its own that has four intra-op threads.
"""

import os
import subprocess
import sys

import pytest

from impl._thread_locals import SINGLE_USE_THREADS
from spec_tests.machine.processes import run_program

#: ``numbers`` returns the numbers that PyTorch, OpenMP and MKL use in the running thread.
PROLOGUE = """
import re, threading
import torch
from torch import nn
import impl

NUMBERS = r"(?:at::get_num|omp_get_max|mkl_get_max)_threads\\(\\) : (\\d+)"


def numbers():
    return {int(number) for number in re.findall(NUMBERS, torch.__config__.parallel_info())}


def in_new_thread(function):
    found = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


class Call(nn.Module):
    # Its forward returns what a function returns.
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return [self.function()]


rows = torch.zeros(8, 1)


def on_cpu(replicas, function=numbers, **settings):
    return impl.DataParallel(Call(function), ["cpu"] * replicas, **settings)


def results(*arguments, **settings):
    # Outputs are gathered in a list.
    return on_cpu(*arguments, **settings)(rows)[0]
"""
#: For each fact that a program shows: the program, and the value that it prints.
PROGRAMS = {
    "replicas divide the threads": (
        "print([results(replicas) for replicas in (1, 2, 3, 8)])",
        [{4}, [{2}] * 2, [{1}] * 3, [{1}] * 8],
    ),
    "replicas in turn have all threads": ("print(results(2, in_turn=True))", [{4}, {4}]),
    "batches of map divide the threads": (
        """
with torch.no_grad():
    print([[*on_cpu(2, in_turn=in_turn).map([rows] * 3)] for in_turn in (False, True)])
""",
        [[[{2}]] * 3, [[{4}]] * 3],
    ),
    "nested replicas divide the threads of their replica": (
        "print(results(2, lambda: results(2)))",
        [[{1}, {1}]] * 2,
    ),
    "a thread that a replica starts has all threads": (
        "print(results(2, lambda: in_new_thread(numbers)))",
        [{4}, {4}],
    ),
    "the caller and a thread that starts beside replicas have all threads": (
        """
started, ended = threading.Barrier(3, timeout=60), threading.Barrier(3, timeout=60)
net = on_cpu(2, lambda: (started.wait(), ended.wait()))
calling = threading.Thread(target=net, args=[rows])
calling.start()
started.wait()
print([in_new_thread(numbers), numbers()])
ended.wait()
calling.join()
""",
        [{4}, {4}],
    ),
    "the caller and later threads have all threads after a call that fails": (
        """
def fail():
    raise ValueError

try:
    on_cpu(4, fail)(rows)
except ValueError:
    print([in_new_thread(numbers), numbers()])
""",
        [{4}, {4}],
    ),
    "concurrent callers divide their own threads": (
        """
barrier = threading.Barrier(4, timeout=60)

def call(count):
    torch.get_num_threads()  # PyTorch sets the number of a new thread here, or in an operator.
    torch.set_num_threads(count)
    return [results(2, lambda: (barrier.wait(), numbers())[1]) for _ in range(5)]

other = []
thread = threading.Thread(target=lambda: other.extend(call(6)))
thread.start()
own = call(4)
thread.join()
print([own, other])
""",
        [[[{2}, {2}]] * 5, [[{3}, {3}]] * 5],
    ),
    "workers with one thread are reused": (
        """
barrier = threading.Barrier(4, timeout=60)
net = on_cpu(4, lambda: (barrier.wait(), threading.get_ident())[1])
print({*net(rows)[0]} == {*net(rows)[0]})
""",
        not SINGLE_USE_THREADS,
    ),
    "replicas have all threads without the functions of OpenMP": (
        """
from impl import _intra_op_threads
_intra_op_threads._find_setters = lambda: None
print([results(2), in_new_thread(numbers)])
""",
        [[{4}, {4}], {4}],
    ),
}


@pytest.mark.parametrize(("program", "printed"), PROGRAMS.values(), ids=PROGRAMS)
def test_a_program_with_four_threads_shows_that(program, printed):
    completed = run_program(PROLOGUE + "torch.set_num_threads(4)\n" + program)
    assert (completed.stdout, completed.stderr) == (f"{printed}\n", "")


def test_replicas_divide_the_number_of_the_environment():
    # OpenMP reads the number when it is loaded. MKL uses more threads than cores only if told to.
    variables = {"OMP_NUM_THREADS": "4", "MKL_DYNAMIC": "FALSE", "PYTHONPATH": ":".join(sys.path)}
    completed = subprocess.run(
        [sys.executable, "-c", PROLOGUE + "print(results(2), in_new_thread(numbers))"],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    assert completed.stdout == "[{2}, {2}] {4}\n"
