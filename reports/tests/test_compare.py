"""`bench.compare` measures rows below their floors again, and fails if they stay below."""

import json
import os

import pytest

from bench import compare
from bench.compare import ATTEMPTS, find_rows_below, format_row, largest_moves
from reports.tests.samples import make_benchmark_run
from spec_tests.site.ratios import Ratio

#: For each row: the required minimum of its ratio.
FLOORS = {"slow": 2.0, "fast": 2.0, "fast (bytes)": 1.5}


def make_run(ratios, peaks=(300, 100)):
    """Return a saved run with the given median of ratios for each group."""
    benchmarks = [
        each for group, ratio in ratios.items() for each in make_benchmarks(group, ratio, peaks)
    ]
    return {"benchmarks": benchmarks}


def make_benchmarks(group, ratio, peaks):
    pairs = {"q1": 0.9 * ratio, "median": ratio, "q3": 1.1 * ratio}
    for library, peak in zip(("reference", "impl"), peaks, strict=True):
        yield {
            "group": group,
            "fullname": group if library == "impl" else f"{group} ({library})",
            "extra_info": {
                "library": library,
                "peak_bytes": peak if group == "fast" else None,
                **({"pairs": pairs} if library == "impl" else {}),
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


def test_rows_at_or_above_their_floors_are_not_measured_again():
    measure = FakeMeasure()
    assert find_rows_below(make_run({"slow": 2.0, "fast": 3.0}), FLOORS, measure) == []
    assert measure.calls == []


def test_only_the_row_below_its_floor_is_measured_again():
    measure = FakeMeasure(make_run({"slow": 2.1}))
    assert find_rows_below(make_run({"slow": 1.9, "fast": 3.0}), FLOORS, measure) == []
    assert measure.calls == [["slow"]]


def test_row_below_its_floor_in_every_measurement_is_returned():
    measure = FakeMeasure(*[make_run({"slow": 1.9})] * (ATTEMPTS - 1))
    assert find_rows_below(make_run({"slow": 1.9, "fast": 3.0}), FLOORS, measure) == ["slow"]
    assert measure.runs == []


def test_row_of_bytes_is_measured_again_with_the_benchmark_of_its_group():
    much_memory = make_run({"fast": 3.0}, peaks=(100, 100))
    measure = FakeMeasure(much_memory, make_run({"fast": 1.0}))
    assert find_rows_below(much_memory, FLOORS, measure) == []
    assert measure.calls == [["fast"]] * 2


def test_run_without_both_libraries_raises():
    with pytest.raises(ValueError, match="nothing to compare"):
        find_rows_below({"benchmarks": []}, FLOORS, FakeMeasure())


@pytest.mark.parametrize(
    ("is_terminal", "end"), [(True, "ok     " + "█" * 12), (False, "ok")], ids=["terminal", "file"]
)
def test_rows_end_with_a_bar_on_a_terminal_only(monkeypatch, is_terminal, end):
    monkeypatch.setattr(compare.sys.stdout, "isatty", lambda: is_terminal, raising=False)
    ratio = Ratio(group="scatter", value=1.5, low=1.4, high=1.6, floor=1.0)
    assert format_row(ratio).endswith(end)


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


@pytest.mark.parametrize("text", ["<html>", "[" * 100_000, "null", "[]", '{"benchmarks": 1e999}'])
def test_a_file_of_another_format_is_refused_in_one_line(compare_run, text):
    compare_run(text)


def test_a_run_on_a_machine_without_a_version_of_python_has_no_floors(capsys):
    info = {"cpu": {}, "python_version": " "}
    assert compare._find_floors(info)
    assert "unknown processor" in capsys.readouterr().out
