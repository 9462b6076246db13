"""`bench.compare` measures rows below their floors again, and fails if they stay below.

It does not judge noisy rows.
"""

import copy
import json
import os

import pytest

from bench import compare
from bench.compare import ATTEMPTS, Verdict, format_row, judge_rows, largest_moves
from bench.ratios import Ratio
from reports.tests.samples import make_benchmark_run

#: For each row: the required minimum of its ratio.
FLOORS = {"slow": 2.0, "fast": 2.0, "fast (bytes)": 1.5}


def make_run(ratios, peaks=(300, 100), share=0.99):
    """Return a saved run with the given median of ratios for each group."""
    benchmarks = [
        each
        for group, ratio in ratios.items()
        for each in make_benchmarks(group, ratio, peaks, share)
    ]
    return {"benchmarks": benchmarks}


def make_benchmarks(group, ratio, peaks, share):
    pairs = {"q1": 0.9 * ratio, "median": ratio, "q3": 1.1 * ratio}
    for library, peak in zip(("reference", "impl"), peaks, strict=True):
        yield {
            "group": group,
            "fullname": group if library == "impl" else f"{group} ({library})",
            "extra_info": {
                "library": library,
                "peak_bytes": peak if group == "fast" else None,
                **({"pairs": pairs, "processor_share": share} if library == "impl" else {}),
            },
            "stats": {"median": 1.0, "q1": 1.0, "q3": 1.0},
        }


class FakeMeasure:
    """A ``measure`` function that returns prepared runs and records the requested benchmarks."""

    def __init__(self, *runs):
        self.runs, self.calls = list(runs), []

    def __call__(self, names):
        self.calls.append(names)
        return self.runs.pop(0)


def rows_below(run, measure):
    verdicts = judge_rows(run, FLOORS, measure)
    return [row for row, verdict in verdicts.items() if verdict is Verdict.BELOW]


def test_rows_at_or_above_their_floors_are_not_measured_again():
    measure = FakeMeasure()
    assert rows_below(make_run({"slow": 2.0, "fast": 3.0}), measure) == []
    assert measure.calls == []


def test_row_below_its_floor_in_every_measurement_is_returned():
    measure = FakeMeasure(*[make_run({"slow": 1.9})] * (ATTEMPTS - 1))
    assert rows_below(make_run({"slow": 1.9, "fast": 3.0}), measure) == ["slow"]
    assert measure.runs == []


@pytest.mark.parametrize("ratio", [1.0, 3.0])
def test_time_measured_beside_busy_processes_is_noisy_and_its_memory_is_judged(ratio):
    run, measure = make_run({"slow": ratio, "fast": ratio}, share=0.6), FakeMeasure()
    assert judge_rows(run, FLOORS, measure) == {
        "slow": Verdict.NOISY,
        "fast": Verdict.NOISY,
        "fast (bytes)": Verdict.OK,
    }
    assert measure.calls == []


def test_row_of_bytes_is_measured_again_with_the_benchmark_of_its_group():
    much_memory = make_run({"fast": 3.0}, peaks=(100, 100))
    measure = FakeMeasure(much_memory, make_run({"fast": 1.0}))
    assert rows_below(much_memory, measure) == []
    assert measure.calls == [["fast"]] * 2


def test_run_without_both_libraries_raises():
    with pytest.raises(ValueError, match="nothing to compare"):
        judge_rows({"benchmarks": []}, FLOORS, FakeMeasure())


@pytest.mark.parametrize(
    ("is_terminal", "end"), [(True, "ok     " + "█" * 12), (False, "ok")], ids=["terminal", "file"]
)
def test_rows_end_with_a_bar_on_a_terminal_only(monkeypatch, is_terminal, end):
    monkeypatch.setattr(compare.sys.stdout, "isatty", lambda: is_terminal, raising=False)
    ratio = Ratio(group="scatter", value=1.5, low=1.4, high=1.6, floor=1.0)
    assert format_row(ratio).endswith(end)


@pytest.mark.parametrize(
    ("shares", "status", "printed"),
    [
        ((0.99, 0.99), 1, ["judged 2 of 2 rows", "below their floors every time: work"]),
        ((0.6, 0.99), 0, ["judged 1 of 2 rows", "too noisy to judge: 1 row(s)"]),
        (
            (0.6, 0.6),
            3,
            ["nothing was judged", "judged 0 of 2 rows", "too noisy to judge: 2 row(s)"],
        ),
    ],
    ids="shares={}".format,
)
def test_only_judged_rows_fail_and_their_number_is_printed(
    tmp_path, monkeypatch, capsys, shares, status, printed
):
    path = tmp_path / "run.json"
    run = make_benchmark_run()
    more = make_benchmark_run()["benchmarks"]
    for each in more:
        each["group"] = "more"
    for benchmarks, share in zip((run["benchmarks"], more), shares, strict=True):
        benchmarks[-1]["extra_info"]["processor_share"] = share
    run["benchmarks"] += more
    path.write_text(json.dumps(run))
    monkeypatch.setattr(compare, "_find_floors", lambda info: {"work": 9.0, "more": 1.0})
    monkeypatch.setattr(compare, "_run_benchmarks", lambda names: run)
    assert compare.main([str(path)]) == status
    output = capsys.readouterr().out
    assert all(text in output for text in printed)


def test_floor_on_a_machine_without_floors_is_the_smallest_of_all_machines_and_1(
    tmp_path, monkeypatch, capsys
):
    rows = {"P": {"fast": 2.0, "slower": 0.8}, "Q": {"fast": 3.0, "slower": 0.7}}
    tables = [
        f'[[machine]]\nprocessor = "{name}"\npython = "3.11"\nthreads = 1\n[machine.floors]\n'
        + "".join(f'"{row}" = {floor}\n' for row, floor in each.items())
        for name, each in rows.items()
    ]
    monkeypatch.setattr(compare, "FLOORS", tmp_path / "floors.toml")
    compare.FLOORS.write_text("".join(tables))
    info = {"cpu": {"brand_raw": "P"}, "python_version": "3.11.7", "threads": 1}
    assert compare._find_floors(info) == rows["P"]
    assert compare._find_floors({**info, "threads": 2}) == {"fast": 1.0, "slower": 0.7}
    assert "no floors were measured on P, Python 3.11.7" in capsys.readouterr().out


def test_the_three_rows_that_moved_most_are_named_with_their_change():
    published = make_run({"a": 2.0, "b": 2.0, "c": 2.0, "d": 2.0, "gone": 2.0})
    lines = largest_moves(
        make_run({"a": 2.1, "b": 1.0, "c": 3.0, "d": 1.8, "new": 9.0}), published
    )
    assert [line.split() for line in lines] == [
        ["b", "2.00", "->", "1.00", "-50%"],
        ["c", "2.00", "->", "3.00", "+50%"],
        ["d", "2.00", "->", "1.80", "-10%"],
    ]


def test_a_file_without_benchmarks_is_refused(tmp_path, capsys):
    path = tmp_path / "run.json"
    path.write_text('{"runs": []}')
    with pytest.raises(SystemExit) as caught:
        compare.main([str(path)])
    assert caught.value.code == 2
    assert "run.json was not written by pytest --benchmark-json: " in capsys.readouterr().err


@pytest.fixture
def compare_run(tmp_path, monkeypatch, capsys):
    """Return a function that compares a run whose row is below its floor, and returns stderr."""
    monkeypatch.setattr(compare, "FLOORS", tmp_path / "floors.toml")
    machine = '[[machine]]\nprocessor = "Fast"\npython = "3"\nthreads = 1\n'
    compare.FLOORS.write_text(f"{machine}[machine.floors]\nwork = 9.0\n")

    def call(run):
        path = tmp_path / "run.json"
        path.write_text(run if isinstance(run, str) else json.dumps(run))
        with pytest.raises(SystemExit) as caught:
            compare.main([str(path)])
        assert caught.value.code == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"{path}")
        return line

    return call


@pytest.mark.parametrize(
    "name", ["{folder}/evil.py::test_it", "--basetemp={folder}", "../evil.py", "-p evil", ""]
)
def test_a_file_that_is_no_benchmark_is_not_executed(compare_run, tmp_path, name):
    evil = tmp_path / "evil.py"
    evil.write_text(f"open({str(tmp_path / 'executed')!r}, 'w')\ndef test_it(): pass")
    run = make_benchmark_run()
    for each in run["benchmarks"]:
        each["fullname"] = name.format(folder=tmp_path)
    assert "is no benchmark of this checkout" in compare_run(run)
    assert sorted(os.listdir(tmp_path)) == ["evil.py", "floors.toml", "run.json"]


@pytest.mark.parametrize(("median", "status"), [(1.1, 0), (1.3, 1)], ids="median={}".format)
def test_ratio_may_fall_to_85_percent_of_the_ratio_in_the_run_before(tmp_path, median, status):
    before = make_benchmark_run(target="mine")  # Its ratio is 2.
    after = copy.deepcopy(before)
    stats = after["benchmarks"][-1]["stats"]
    stats.update(dict.fromkeys(("q1", "median", "q3"), median))
    files = [tmp_path / "new.json", tmp_path / "old.json"]
    for file, run in zip(files, (after, before), strict=True):
        file.write_text(json.dumps(run))
    assert compare.main([str(files[0]), "--before", str(files[1])]) == status
