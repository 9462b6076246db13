"""`bench.noise` measures how much of the processors other processes leave to a benchmark."""

import subprocess
import sys
from contextlib import ExitStack

import pytest

from bench import noise
from bench.noise import ProcessorShare
from bench.ratios import QUIET_SHARE

#: A program that uses one processor until its standard input is closed.
BUSY = """
import sys, threading
threading.Thread(target=sys.stdin.read).start()
print(flush=True)
while threading.active_count() > 1:
    pass
"""


@pytest.fixture
def computations(monkeypatch):
    """Return a list. Each item is the processor time and the wall time of a computation."""
    times = []
    monkeypatch.setattr(noise, "_count_processors", lambda: 2)
    monkeypatch.setattr(noise, "_compute", lambda _: times.pop(0))
    return times


def test_share_is_the_processor_time_of_all_computations_by_their_wall_time(
    computations, monkeypatch
):
    computations += [(1.0, 1.0), (1.0, 2.0), (1.0, 4.0), (1.0, 1.0)]
    monkeypatch.setattr(noise, "_INTERVAL", 0.0)
    share = ProcessorShare()
    share.sample()
    share.sample()
    assert share.value == 0.5


def test_a_sample_is_skipped_soon_after_the_last_one(computations, monkeypatch):
    computations += [(1.0, 1.0)] * 2
    monkeypatch.setattr(noise, "_INTERVAL", 1000.0)
    share = ProcessorShare()
    share.sample()
    share.sample()
    assert share.value == 1.0


def test_share_beside_busy_processes_is_noisy(monkeypatch):
    monkeypatch.setattr(noise, "_INTERVAL", 0.0)
    share = ProcessorShare()
    with ExitStack() as stack:
        for _ in range(2 * noise._count_processors()):
            process = subprocess.Popen(
                [sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            stack.enter_context(process)
            stack.callback(process.stdin.close)
            process.stdout.readline()
        for _ in range(5):
            share.sample()
    assert share.value < QUIET_SHARE
