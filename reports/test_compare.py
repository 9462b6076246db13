"""A row below its floor is measured again before it counts."""

import pytest

from bench.compare import ATTEMPTS, rows_below

FLOORS = {"slow": 2.0, "fast": 2.0, "fast (bytes)": 1.5}


def saved(ratios, peaks=(300, 100)):
    """A run of these groups, whose medians have these ratios."""
    return {"benchmarks": [each for group in ratios.items() for each in members(*group, peaks)]}


def members(group, ratio, peaks):
    for library, median, peak in zip(("reference", "impl"), (ratio, 1.0), peaks, strict=True):
        yield {
            "group": group,
            "fullname": f"{group}[{library}]",
            "extra_info": {"library": library, "peak_bytes": peak if group == "fast" else None},
            "stats": {"median": median, "q1": median, "q3": median},
        }


class Measuring:
    """Gives one saved run after the other; notes what it was asked for."""

    def __init__(self, *runs):
        self.runs, self.asked = list(runs), []

    def __call__(self, names):
        self.asked.append(names)
        return self.runs.pop(0)


def test_what_reaches_its_floor_is_measured_once():
    measure = Measuring()
    assert rows_below(saved({"slow": 2.0, "fast": 3.0}), FLOORS, measure) == []
    assert measure.asked == []


def test_only_the_row_below_its_floor_is_measured_again():
    measure = Measuring(saved({"slow": 2.1}))
    assert rows_below(saved({"slow": 1.9, "fast": 3.0}), FLOORS, measure) == []
    assert measure.asked == [["slow[reference]", "slow[impl]"]]


def test_a_row_counts_once_it_was_below_each_time():
    measure = Measuring(*[saved({"slow": 1.9})] * (ATTEMPTS - 1))
    assert rows_below(saved({"slow": 1.9, "fast": 3.0}), FLOORS, measure) == ["slow"]
    assert measure.runs == []


@pytest.mark.parametrize(("quickest", "below"), [(0.9, ["slow"]), (0.5, [])])
def test_a_row_whose_quartiles_reach_its_floor_is_not_below(quickest, below):
    run = saved({"slow": 1.5})
    run["benchmarks"][1]["stats"]["q1"] = quickest
    assert rows_below(run, FLOORS, Measuring(*[run] * (ATTEMPTS - 1))) == below


def test_bytes_are_measured_again_by_the_benchmark_of_their_times():
    heavy = saved({"fast": 3.0}, peaks=(100, 100))
    measure = Measuring(heavy, saved({"fast": 1.0}))
    assert rows_below(heavy, FLOORS, measure) == []
    assert measure.asked == [["fast[reference]", "fast[impl]"]] * 2


def test_a_run_that_compares_nothing_is_an_error():
    with pytest.raises(ValueError, match="nothing to compare"):
        rows_below({"benchmarks": []}, FLOORS, Measuring())
