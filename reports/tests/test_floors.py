"""The floors of the benchmarks, compared with the measured ratios from which they are derived."""

import json
import tomllib

import pytest

from bench.compare import FLOORS
from bench.measured import MEASURED, merge_runs, summarize_run
from reports.tests.samples import make_benchmark_run

#: Row -> its floor, the required minimum of its ratio.
TABLE = tomllib.loads(FLOORS.read_text(encoding="utf-8"))["floors"]
#: Beginnings of the names of rows whose floor is not 80 % of the smallest ratio. floors.toml has
#: the reasons.
EXCEPTIONS = (
    "DataParallel forward blocks",
    "DataParallel forward+backward blocks",
    "DataParallel peak memory",
    "parallel_apply ",
)


def smallest_ratios():
    """Return for each row the smallest measured ratio."""
    smallest = {}
    for run in json.loads(MEASURED.read_text(encoding="utf-8")):
        for row, ratio in run["ratios"].items():
            smallest[row] = min(ratio, smallest.get(row, ratio))
    return smallest


SMALLEST = smallest_ratios()
ROWS = [row for row in SMALLEST if not row.startswith(EXCEPTIONS)]


@pytest.mark.parametrize("row", ROWS)
def test_floor_is_80_percent_of_the_smallest_measured_ratio(row):
    assert TABLE[row] == pytest.approx(0.8 * SMALLEST[row], abs=0.01)


def test_every_measured_row_has_a_floor_except_the_time_of_the_peak_memory_benchmark():
    assert set(SMALLEST) - set(TABLE) == {"DataParallel peak memory blocks=20 width=256"}


def test_no_floor_is_above_the_smallest_measured_ratio():
    assert not [row for row, floor in TABLE.items() if floor > SMALLEST[row]]


def test_summary_of_a_run_has_date_commit_processor_and_ratios():
    assert summarize_run(make_benchmark_run()) == {
        "date": "2026-01-02",
        "commit": "abc",
        "processor": "Fast",
        "ratios": {"work": 2.0},
    }


def test_new_runs_replace_only_the_ratios_of_rows_that_they_measure():
    old = [{"ratios": {"a": 1.0, "b": 2.0}}, {"ratios": {"a": 1.1}}]
    new = [{"ratios": {"a": 3.0}}]
    assert merge_runs(old, new) == [{"ratios": {"b": 2.0}}, *new]
