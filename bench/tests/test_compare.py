"""`bench.compare` compares the ratios of a saved run with their floors."""

import json

import pytest

from bench import compare
from bench.compare import BELOW, FREE, OK, UNSURE, print_table
from bench.ratios import Ratio
from bench.tests.samples import make_benchmark_run


def test_rows_are_judged_by_their_floors():
    ratios = {"slow": 1.9, "fast": 2.0, "new": 1.0}
    run = make_benchmark_run({row: {"reference": ratios[row], "impl": 1.0} for row in ratios})
    for each in run["benchmarks"]:
        if each["group"] == "fast":
            each["extra_info"]["peak_bytes"] = (
                100 if each["extra_info"]["library"] == "impl" else 300
            )
    floors = {"slow": 2.0, "fast": 2.0, "fast (bytes)": 1.5}
    assert print_table(run, floors) == {"slow": BELOW, "fast": OK, "fast (bytes)": OK, "new": FREE}


@pytest.mark.parametrize(("upper", "verdict"), [(1.4, BELOW), (1.6, UNSURE)])
def test_a_row_is_below_its_floor_only_if_its_upper_quartile_is(upper, verdict):
    assert compare._judge(Ratio("work", value=1.2, low=1.0, high=upper, floor=1.5)) == verdict


def test_run_without_both_libraries_raises():
    with pytest.raises(ValueError, match="nothing to compare"):
        print_table({"benchmarks": []}, {})


@pytest.mark.parametrize(
    ("floor", "status", "printed"),
    [(1.0, 0, "judged 1 of 1 rows"), (9.0, 1, "below their floors: work"), (None, 3, "judged 0")],
    ids="floor={}".format,
)
def test_the_status_tells_whether_a_row_is_below_its_floor(
    tmp_path, monkeypatch, capsys, floor, status, printed
):
    path = tmp_path / "run.json"
    path.write_text(json.dumps(make_benchmark_run()))
    monkeypatch.setattr(
        compare, "_find_floors", lambda _: {} if floor is None else {"work": floor}
    )
    assert compare.main([str(path)]) == status
    assert printed in capsys.readouterr().out


def test_a_floor_is_at_most_1_on_a_machine_that_was_not_measured(monkeypatch, capsys):
    rows = {"fast": 2.0, "slower": 0.8}
    table = {"processor": "P", "python": "3.11", "threads": 1, "floors": rows}
    monkeypatch.setattr(compare.floors, "load", lambda: table)
    info = {"cpu": {"brand_raw": "P"}, "python_version": "3.11.7", "threads": 1}
    assert compare._find_floors({"machine_info": info}) == rows
    other = {"machine_info": {**info, "threads": 2}}
    assert compare._find_floors(other) == {"fast": 1.0, "slower": 0.8}
    assert "no floors were measured on P, Python 3.11.7" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("median", "change", "status"), [(1.1, "-9%", 0), (1.3, "-23%", 1)], ids="median={}".format
)
def test_ratio_may_fall_to_85_percent_of_the_ratio_in_the_run_before(
    tmp_path, capsys, median, change, status
):
    before = make_benchmark_run(target="mine")  # Its ratio is 2.
    after = make_benchmark_run({"work": {"reference": 2.0, "impl": median}}, target="mine")
    files = [tmp_path / "new.json", tmp_path / "old.json"]
    for file, run in zip(files, (after, before), strict=True):
        file.write_text(json.dumps(run))
    assert compare.main([str(files[0]), "--before", str(files[1])]) == status
    row = capsys.readouterr().out.splitlines()[1].split()
    assert (row[0], row[-3:-1]) == ("work", ["2.00", change])
