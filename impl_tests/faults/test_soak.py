"""The lines that the soak test fits to resources."""

import pytest

from impl_tests.faults.soak import fit_slope


def test_the_slope_of_a_line_is_exact():
    slope = fit_slope([0, 1000, 2000, 3000], [5, 7, 9, 11])
    assert slope.slope == pytest.approx(2)
    assert slope.error == pytest.approx(0, abs=1e-9)
    assert slope.growth == pytest.approx(6)
    assert slope.is_growing("threads")


def test_values_that_alternate_do_not_grow():
    slope = fit_slope(range(8), [5, 6] * 4)
    assert not slope.is_growing("threads")


def test_the_error_of_the_slope_is_its_standard_error():
    # Computed by hand: the slope is 1/2, and the residuals are 1/6, -1/3 and 1/6.
    slope = fit_slope([0, 1, 2], [0, 0, 1])
    assert slope.error == pytest.approx(1000 * (1 / 6 / 2) ** 0.5)


def test_a_small_growth_of_the_host_memory_does_not_count():
    values = [1000.0 + step / 1000 for step in range(10)]
    assert not fit_slope(range(10), values).is_growing("host memory (bytes)")
