"""The libraries of a benchmark are timed in turn, and each gets an entry in the saved run."""

from types import SimpleNamespace

import pytest

from bench import alternation


class FakeBenchmark:
    """The part of pytest-benchmark's fixture that is used. Only calls advance its clock."""

    disabled = False

    def __init__(self):
        self.now = 0.0
        self.extra_info = {"devices": ["sim:0", "sim:1"]}
        self.stats = SimpleNamespace(stats=SimpleNamespace(data=[]))

    def perf_counter(self):
        """Return the seconds that the calls have taken so far."""
        return self.now

    def make_call(self, *seconds):
        """Return a function. Its calls take the given seconds, and later calls the last value."""
        left = list(seconds)

        def call():
            self.now += left.pop(0) if len(left) > 1 else left[0]

        return call

    def pedantic(self, call, setup, rounds):
        """Time ``call`` in each round, after ``setup``."""
        for _ in range(rounds):
            setup()
            self.stats.stats.data.append(alternation._time(call))


@pytest.fixture
def time_calls(monkeypatch):
    """Return a function that times two calls on a machine whose speed changes.

    The ratios of the five turns are 3, 3, 2, 3 and 2. The module alone takes four times the time
    of impl. Before the turns, each function is called twice: to warm up, and to estimate the
    duration.
    """

    def run(seconds=0.0):
        benchmark = FakeBenchmark()
        monkeypatch.setattr(alternation, "time", benchmark)
        calls = {
            "one device": benchmark.make_call(4, 4, 4, 32, 40, 4, 40),
            "reference": benchmark.make_call(3, 3, 3, 24, 20, 3, 20),
            "impl": benchmark.make_call(1, 1, 1, 8, 10, 1, 10),
        }
        alternation.time_alternately(benchmark, "impl", calls, seconds, {})
        return benchmark

    return run


def test_ratio_compares_the_times_of_the_same_turn(time_calls):
    # The ratio of the two medians would be 2.5.
    assert time_calls().extra_info["pairs"] == {"q1": 2.0, "median": 3.0, "q3": 3.0}


def test_at_least_five_turns_are_made_and_more_if_there_is_time(time_calls):
    assert len(time_calls().stats.stats.data) == 5
    assert len(time_calls(80.0).stats.stats.data) == 10


def test_efficiency_divides_by_the_number_of_replicas(time_calls):
    assert time_calls().extra_info["efficiency"] == {"reference": 2 / 3, "impl": 2.0}
