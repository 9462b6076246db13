"""The stress test passes on impl, and detects growing resources."""

import pytest

from impl_tests.long_checks.stress import WARM_UP, find_growth

STEADY = {"threads": 4, "objects": 1000, "bytes of devices": 480, "resident MiB": 300.0}


def test_a_short_run_passes(run_module):
    run = run_module("impl_tests.long_checks.stress", "--minutes", "0.1")
    assert run.returncode == 0, run.stdout + run.stderr
    assert "no wrong result, no kept replicas left, no growth" in run.stdout


@pytest.mark.parametrize("name", STEADY)
def test_a_resource_that_doubles_has_grown_but_not_one_that_alternates(name):
    doubled = {**STEADY, name: STEADY[name] * 2}
    measurements = [STEADY] * 3 * WARM_UP + [doubled] * WARM_UP
    assert [text.partition(" were")[0] for text in find_growth(measurements)] == [
        f"growth: {name}"
    ]
    assert not [*find_growth([STEADY, doubled] * 9)]
