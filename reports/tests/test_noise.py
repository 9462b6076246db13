"""`bench.noise` measures how much of the processors other processes leave to a benchmark."""

import hashlib
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from bench import noise
from bench.noise import ProcessorShare

#: A program that has computed for some seconds of processor time when it prints a line.
COMPUTED_SECONDS = 0.5
COMPUTING = f"""
import sys, time
while time.process_time() < {COMPUTED_SECONDS}: pass
print(flush=True)
sys.stdin.read()
"""


def compute():
    """Compute for some tenths of a second, without the interpreter lock."""
    hashlib.pbkdf2_hmac("sha256", b"", b"", 500_000)


@pytest.fixture
def processors(monkeypatch):
    """Return the clock and the time of other processes, on a machine with two processors."""
    state = SimpleNamespace(wall=100.0, others=50.0)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(noise.time, "perf_counter", lambda: state.wall)
    monkeypatch.setattr(noise, "_time_of_others", lambda: state.others)
    return state


def test_share_is_what_others_left_of_all_processors(processors):
    share = ProcessorShare()
    processors.wall += 10
    processors.others += 5
    assert share.value == 0.75


def test_computation_of_this_process_and_its_children_is_not_that_of_others():
    start = noise._time_of_this_process()
    compute()
    own = noise._time_of_this_process()
    command = [sys.executable, "-c", COMPUTING]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        with_child = noise._time_of_this_process()
    with_ended_child = noise._time_of_this_process()
    assert own > start
    # /proc counts hundredths of a second.
    assert min(with_child, with_ended_child) - own > COMPUTED_SECONDS - 0.1
