"""The floors of the benchmarks are 80 % of what was measured, as CONTRIBUTING.md asks."""

import json
import tomllib
from pathlib import Path

import pytest

from bench.compare import FLOORS, ratios

REPORTS = Path(__file__).parent
TABLE = tomllib.loads(FLOORS.read_text(encoding="utf-8"))
#: Rows with another floor, or none, for the reasons that floors.toml gives.
OTHERWISE = (
    "DataParallel forward blocks",
    "DataParallel forward+backward blocks",
    "DataParallel peak memory",
    "parallel_apply ",
)


def least_measured(reports):
    """The least ratio of each row in the runs of these reports."""
    least = {}
    for report in reports:
        saved = json.loads((REPORTS / report / "benchmark.json").read_text(encoding="utf-8"))
        for ratio in (found for run in saved["runs"] for found in ratios(run, {})):
            least[ratio.group] = min(ratio.value, least.get(ratio.group, ratio.value))
    return least


LEAST = least_measured(TABLE["measured_since"]) | least_measured(TABLE["measured"])
HELD = [group for group in LEAST if not group.startswith(OTHERWISE)]


@pytest.mark.parametrize("group", HELD)
def test_a_floor_is_four_fifths_of_the_least_measured(group):
    assert TABLE["floors"][group] == pytest.approx(0.8 * LEAST[group], abs=0.01)


def test_every_measured_row_but_one_has_a_floor():
    assert set(LEAST) - set(TABLE["floors"]) == {"DataParallel peak memory blocks=20 width=256"}


def test_no_floor_is_above_what_was_measured():
    assert not [group for group, floor in TABLE["floors"].items() if floor > LEAST[group]]
