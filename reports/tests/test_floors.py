"""The floors of the benchmarks against the ratios that they are set from."""

import json
import tomllib

import pytest

from bench.compare import FLOORS
from bench.measured import MEASURED, merge_runs, summarize_run
from reports.tests.samples import benchmark_run

TABLE = tomllib.loads(FLOORS.read_text(encoding="utf-8"))["floors"]
#: Rows with another floor or none; floors.toml says why.
EXCEPTIONS = (
    "DataParallel forward blocks",
    "DataParallel forward+backward blocks",
    "DataParallel peak memory",
    "parallel_apply ",
)


def least_ratios():
    """Return the least measured ratio of each row."""
    least = {}
    for run in json.loads(MEASURED.read_text(encoding="utf-8")):
        for row, ratio in run["ratios"].items():
            least[row] = min(ratio, least.get(row, ratio))
    return least


LEAST = least_ratios()
ROWS = [row for row in LEAST if not row.startswith(EXCEPTIONS)]


@pytest.mark.parametrize("row", ROWS)
def test_floor_is_four_fifths_of_the_least_measured_ratio(row):
    assert TABLE[row] == pytest.approx(0.8 * LEAST[row], abs=0.01)


def test_every_measured_row_has_a_floor_except_the_time_of_peak_memory():
    assert set(LEAST) - set(TABLE) == {"DataParallel peak memory blocks=20 width=256"}


def test_no_floor_is_above_the_least_measured_ratio():
    assert not [row for row, floor in TABLE.items() if floor > LEAST[row]]


def test_saved_run_becomes_date_commit_processor_and_ratios():
    found = summarize_run(benchmark_run())
    assert found == {
        "date": "2026-01-02",
        "commit": "abc",
        "processor": "Fast",
        "ratios": {"work": 2.0},
    }


def test_new_runs_replace_the_ratios_of_their_rows_only():
    old = [{"ratios": {"a": 1.0, "b": 2.0}}, {"ratios": {"a": 1.1}}]
    new = [{"ratios": {"a": 3.0}}]
    assert merge_runs(old, new) == [{"ratios": {"b": 2.0}}, *new]
