"""The libraries of a benchmark are timed in turn, and each gets an entry in the saved run."""

from types import SimpleNamespace

import pytest

from bench import turns


class FakeClock:
    """A clock that advances only during the timed calls."""

    def __init__(self):
        self.now = 0.0

    def perf_counter(self):
        """Return the seconds that the calls have taken so far."""
        return self.now

    def make_call(self, *seconds):
        """Return a function. Its calls take the given seconds, and later calls the last value."""
        left = list(seconds)

        def call():
            self.now += left.pop(0) if len(left) > 1 else left[0]

        return call


class FakeBenchmark:
    """The part of pytest-benchmark's fixture that is used, with a fake clock."""

    disabled = False

    def __init__(self, clock):
        self.clock, self.extra_info = clock, {"devices": ["sim:0"]}
        self.stats = SimpleNamespace(stats=SimpleNamespace(data=[]))

    def pedantic(self, call, setup, rounds):
        """Time ``call`` in each round, after ``setup``."""
        for _ in range(rounds):
            setup()
            start = self.clock.now
            call()
            self.stats.stats.data.append(self.clock.now - start)


@pytest.fixture
def clock(monkeypatch):
    """Return the clock that the timer reads."""
    clock = FakeClock()
    monkeypatch.setattr(turns, "time", clock)
    return clock


def time_sleeps(clock, seconds=0.0):
    """Time two calls on a machine whose speed changes; return the benchmark.

    The ratios of the five turns are 3, 3, 2, 3 and 2. Before the turns, each function is called
    twice: to warm up, and to estimate the duration.
    """
    calls = {
        "reference": clock.make_call(3, 3, 3, 24, 20, 3, 20),
        "impl": clock.make_call(1, 1, 1, 8, 10, 1, 10),
    }
    benchmark = FakeBenchmark(clock)
    turns.time_in_turn(benchmark, "impl", calls, seconds, {"reference": {"peak_bytes": 7}})
    return benchmark


def test_ratio_compares_the_times_of_the_same_turn(clock):
    benchmark = time_sleeps(clock)
    # The ratio of the two medians would be 2.5.
    assert benchmark.extra_info["pairs"] == {"q1": 2.0, "median": 3.0, "q3": 3.0}


def test_at_least_five_turns_are_made_and_more_if_there_is_time(clock):
    assert len(time_sleeps(clock).stats.stats.data) == 5
    assert len(time_sleeps(clock, seconds=40.0).stats.stats.data) == 10
