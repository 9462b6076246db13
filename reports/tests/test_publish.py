"""Publishing: the data kept of a run, refused files, and the replacement of older reports."""

import json

import pytest

from reports.publishing.publish import publish
from reports.tests.samples import benchmark_run, verdicts


@pytest.fixture
def save(tmp_path):
    """Save a run in a file of its own."""

    def save_run(name, run):
        path = tmp_path / name
        path.write_text(json.dumps(run))
        return path

    return save_run


@pytest.fixture
def results(tmp_path):
    """The folder of reports, which does not exist yet."""
    return tmp_path / "results"


def test_report_of_benchmarks_holds_neither_samples_nor_names_of_machines(save, results):
    report = publish([save("a.json", benchmark_run())], folder=results)
    text = (report / "benchmark.json").read_text()
    assert "private" not in text
    (found,) = json.loads(text)["runs"]
    kept = {"min": 2.0, "q1": 2.0, "median": 2.0, "q3": 2.0, "rounds": 3}
    assert found["benchmarks"][0]["stats"] == kept


def test_summary_names_date_machine_versions_and_milliseconds(save, results):
    report = publish([save("a.json", benchmark_run())], "it", "sim", folder=results)
    text = (report / "summary.md").read_text()
    assert text.startswith("# it, torch 2, sim\n\n2026-01-02. Fast, 2 cores, sim:0; torch 2,")
    assert "| work | 2e+03 | 1e+03 | 2.00 | 2.00 to 2.00 | - |" in text


def test_runs_of_one_machine_are_one_report(save, results):
    paths = [save(f"{name}.json", benchmark_run()) for name in "abc"]
    report = publish(paths, folder=results)
    assert "| 2.00, 2.00, 2.00 |" in (report / "summary.md").read_text()
    assert json.loads((report / "environment.json").read_text())["runs"] == 3


def test_runs_of_two_machines_are_refused(save, results):
    paths = [save("a.json", benchmark_run()), save("b.json", benchmark_run(torch="3"))]
    with pytest.raises(ValueError, match="different machines"):
        publish(paths, folder=results)
    assert not results.exists()


def test_runs_of_different_benchmarks_are_refused(save, results):
    more = benchmark_run()
    more["benchmarks"].append({**more["benchmarks"][0], "fullname": "bench_more[impl]"})
    paths = [save("a.json", benchmark_run()), save("b.json", more)]
    with pytest.raises(ValueError, match=r"b\.json and .*a\.json has bench_more\[impl\]"):
        publish(paths, folder=results)
    assert not results.exists()


def test_other_files_are_refused(save, results):
    with pytest.raises(ValueError, match=r"a\.json was not written by"):
        publish([save("a.json", {})], folder=results)
    with pytest.raises(ValueError, match="expected benchmarks"):
        publish([save("a.txt", {})], folder=results)


def test_report_is_named_by_target_release_and_hardware(save, tmp_path, results):
    saved = verdicts(tmp_path / "v.jsonl", {"a.one": "pass"}, torch="2.12.0+cu130")
    assert publish([saved], folder=results) == results / "theirs" / "torch-2.12.0_sim"
    assert publish([saved], "it", "h 200", folder=results) == results / "it" / "torch-2.12.0_h-200"
    bench = publish([save("a.json", benchmark_run())], folder=results)
    assert bench == results / "impl" / "torch-2_sim_bench"


def test_newer_report_replaces_the_older_one_whole(tmp_path, results):
    verdict = {"a.one": "pass"}
    old = publish([verdicts(tmp_path / "v.jsonl", {**verdict, "a.two": "fail"})], folder=results)
    (old / "leftover.txt").touch()
    new = publish(
        [verdicts(tmp_path / "v.jsonl", verdict, date="2026-02-03T00:00:00")], folder=results
    )
    assert new == old
    assert sorted(path.name for path in new.iterdir()) == [
        "environment.json",
        "summary.md",
        "verdicts.jsonl",
    ]
    assert json.loads((new / "environment.json").read_text())["date"].startswith("2026-02-03")
    lines = [line.split() for line in (new / "summary.md").read_text().splitlines()]
    assert ["all", "0", "0", "0", "1", "0"] in lines


def test_refused_file_leaves_the_older_report(tmp_path, results):
    report = publish([verdicts(tmp_path / "v.jsonl", {"a.one": "pass"})], folder=results)
    before = (report / "verdicts.jsonl").read_text()
    (tmp_path / "v.jsonl").write_text(before + "{}\n")
    with pytest.raises(ValueError, match="'test' is a required property"):
        publish([tmp_path / "v.jsonl"], folder=results)
    assert (report / "verdicts.jsonl").read_text() == before
