"""The stress test passes on impl, and detects growing resources."""

import pytest

from impl_tests.weekly.stress.__main__ import MIN_ROUNDS, WARM_UP, Resources, find_growth

STEADY = Resources(threads=4, objects=1000, device_bytes=480, resident_mib=300.0)


def test_a_short_run_passes(run_module):
    run = run_module("impl_tests.weekly.stress", "--minutes", "0.1")
    assert run.returncode == 0, run.stdout + run.stderr
    assert "no wrong result, no kept replicas left, no growth" in run.stdout


@pytest.mark.parametrize("name", ["objects", "device_bytes", "threads", "resident_mib"])
def test_find_growth_returns_the_resource_that_doubles(name):
    measurements = [STEADY] * (WARM_UP + 2 * MIN_ROUNDS)
    measurements += [STEADY._replace(**{name: getattr(STEADY, name) * 2})] * MIN_ROUNDS
    assert [text.split()[1] for text in find_growth(measurements)] == [name]


def test_find_growth_ignores_a_peak_in_a_short_run():
    peak = STEADY._replace(threads=20)
    assert not [*find_growth([STEADY] * (WARM_UP + 2) + [peak])]


def test_find_growth_ignores_values_that_alternate():
    peak = STEADY._replace(objects=3000, resident_mib=900.0)
    assert not [*find_growth([STEADY, peak] * 9)]
