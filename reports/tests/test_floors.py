"""The floors of the benchmarks, compared with the published ratios from which they are derived."""

from pathlib import Path
from statistics import median

import pytest

from bench import benchmark_files, floors
from bench.ratios import ratios
from reports.publishing import benchmarks

#: Rows in which impl is the slower library. floors.toml has the reasons.
SLOWER_BY_DESIGN = "distributed step"
#: The least share of the median of the published ratios that a floor must be.
SHARE = 0.85
PUBLISHED = Path(__file__).parents[1] / "benchmarks/impl/torch-2.13.0_sim.json"
_, DATA = benchmark_files.read(PUBLISHED)
TABLE = floors.load()
FLOOR_OF = TABLE["floors"]


#: For each row: the median of the ratios of the published runs.
MEDIANS = {
    row.group: median(ratio.value for ratio in row.ratios)
    for row in benchmarks.rows(DATA, {})
    if row.ratios
}


def test_at_least_five_runs_are_published():
    assert len(DATA["runs"]) >= 5


def test_the_published_rows_are_those_with_a_floor():
    # The benchmark of peak memory measures bytes; the time of the same call has a row of its own.
    assert MEDIANS.keys() - {"DataParallel peak memory blocks=20 width=256"} == FLOOR_OF.keys()


@pytest.mark.parametrize("row", FLOOR_OF)
def test_floor_is_85_percent_of_the_median_or_more_and_not_above_it(row):
    assert SHARE * MEDIANS[row] <= FLOOR_OF[row] + 0.005
    assert FLOOR_OF[row] < MEDIANS[row]


@pytest.mark.parametrize("row", FLOOR_OF)
def test_floor_is_at_least_1_except_where_impl_is_slower_by_design(row):
    assert FLOOR_OF[row] >= 1 or row.startswith(SLOWER_BY_DESIGN)


def test_no_published_row_is_below_its_floor():
    for run in DATA["runs"]:
        assert all(each.value >= each.floor for each in ratios(run, FLOOR_OF) if each.floor)


@pytest.mark.parametrize(
    "change",
    [{}, {"cpu": "other"}, {"python_version": "3.13.1 (free-threaded)"}, {"threads": 2}],
    ids=["none", "processor", "python", "threads"],
)
def test_only_the_machine_of_the_published_runs_was_measured(change):
    assert floors.were_measured_on({**DATA["machine"], **change}, TABLE) == (not change)
