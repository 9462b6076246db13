"""Publishing: what is kept of a run, what is refused, and that nothing is written over."""

import json

import pytest

from reports.publish import publish


def run_of(**machine):
    """One benchmark of two libraries, as pytest-benchmark writes it."""
    times = {"reference": 2.0, "impl": 1.0}
    info = {"torch": "2", "python_version": "3", "devices": ["sim:0"], "threads": 1, **machine}
    return {
        "datetime": "today",
        "commit_info": {"id": "abc"},
        "machine_info": {"cpu": {"brand_raw": "Fast", "count": 2}, "node": "private", **info},
        "benchmarks": [_benchmark(name, median) for name, median in times.items()],
    }


def _benchmark(library, median):
    stats = dict.fromkeys(("min", "q1", "median", "q3", "mean"), median)
    return {
        "group": "work",
        "fullname": f"bench_work[{library}]",
        "extra_info": {"library": library},
        "options": {"timer": "perf_counter"},
        "stats": {**stats, "rounds": 3, "data": [median] * 3},
    }


@pytest.fixture
def saved(tmp_path):
    """Save a run in a file of its own."""

    def save(name, run):
        path = tmp_path / name
        path.write_text(json.dumps(run))
        return path

    return save


def test_samples_and_names_of_machines_are_left_out(saved, tmp_path):
    home = publish([saved("a.json", run_of())], "it", "sim", folder=tmp_path / "reports")
    text = (home / "benchmark.json").read_text()
    assert "private" not in text
    (found,) = json.loads(text)["runs"]
    kept = {"min": 2.0, "q1": 2.0, "median": 2.0, "q3": 2.0, "rounds": 3}
    assert found["benchmarks"][0]["stats"] == kept


def test_the_summary_names_machine_versions_and_milliseconds(saved, tmp_path):
    home = publish([saved("a.json", run_of())], "it", "sim", folder=tmp_path / "reports")
    text = (home / "summary.md").read_text()
    assert "Fast, 2 cores, sim:0; torch 2, Python 3; 1 run(s)." in text
    assert "| work | 2e+03 | 1e+03 | 2.00 | 2.00 to 2.00 | - |" in text


def test_runs_of_one_machine_are_one_report(saved, tmp_path):
    paths = [saved(f"{name}.json", run_of()) for name in "abc"]
    home = publish(paths, "it", "sim", folder=tmp_path / "reports")
    assert "| 2.00, 2.00, 2.00 |" in (home / "summary.md").read_text()
    assert json.loads((home / "environment.json").read_text())["runs"] == 3


def test_runs_of_two_machines_are_refused(saved, tmp_path):
    paths = [saved("a.json", run_of()), saved("b.json", run_of(torch="3"))]
    with pytest.raises(ValueError, match="different machines"):
        publish(paths, "it", "sim", folder=tmp_path / "reports")
    assert list((tmp_path / "reports").iterdir()) == []


def test_a_run_of_more_benchmarks_than_the_first_is_refused(saved, tmp_path):
    more = run_of()
    more["benchmarks"].append({**_benchmark("impl", 1.0), "fullname": "bench_more[impl]"})
    paths = [saved("a.json", run_of()), saved("b.json", more)]
    with pytest.raises(
        ValueError, match=r"b\.json and .*a\.json, only one has bench_more\[impl\]"
    ):
        publish(paths, "it", "sim", folder=tmp_path / "reports")
    assert list((tmp_path / "reports").iterdir()) == []


def test_a_foreign_file_is_refused(saved, tmp_path):
    with pytest.raises(ValueError, match=r"a\.json was not written by"):
        publish([saved("a.json", {})], "it", "sim", folder=tmp_path / "reports")
    with pytest.raises(ValueError, match="expected files of benchmarks"):
        publish([saved("a.txt", {})], "it", "sim", folder=tmp_path / "reports")


def test_a_second_report_of_a_day_stands_beside_the_first(saved, tmp_path):
    verdict = {"clause": "a.one", "test": "t", "verdict": "pass"}
    source = saved("a.jsonl", verdict)
    first, second = [publish([source], "it", "sim", folder=tmp_path / "reports") for _ in "ab"]
    assert second.name == f"{first.name}_2"
    lines = [line.split() for line in (first / "summary.md").read_text().splitlines()]
    assert ["all", "0", "0", "0", "1", "0"] in lines
