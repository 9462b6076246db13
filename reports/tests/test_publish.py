"""Published benchmarks: their data and page. Paths of published files; refused files."""

import json
import re

import pytest

from bench import benchmark_files
from bench.tests.samples import make_benchmark_run
from reports.publishing.benchmarks import format_page, load
from reports.publishing.publish import check_readme, publish
from spec_tests.machine import clauses
from spec_tests.reporting.tests.samples import write_verdicts


@pytest.fixture
def save_run(tmp_path):
    """Return a function that saves a run of the benchmarks in a file."""

    def save(name, run):
        path = tmp_path / name
        path.write_text(json.dumps(run))
        return path

    return save


@pytest.fixture
def reports(tmp_path):
    """Return the path of the folder of reports. The folder does not exist yet."""
    return tmp_path / "reports"


def page_of(reports):
    """Return the page of all published benchmarks."""
    return format_page(load(reports))


def test_published_benchmarks_have_one_row_each_and_no_samples(save_run, reports):
    path = publish([save_run("a.json", make_benchmark_run())], folder=reports)
    text = path.read_text()
    assert "private" not in text
    assert len(re.findall(r'^"work": ', text, re.M)) == 1
    _, data = benchmark_files.read(path)
    (run,) = data["runs"]
    assert len(run["benchmarks"]) == 2
    assert run["benchmarks"][0]["stats"] == {"q1": 2.0, "median": 2.0, "q3": 2.0, "rounds": 3}


def test_page_has_date_machine_versions_and_milliseconds(save_run, reports):
    publish([save_run("a.json", make_benchmark_run())], "it", "sim", folder=reports)
    text = page_of(reports)
    assert "## it, torch 2, sim\n\n2026-01-02. Fast, 2 cores, sim:0; torch 2, Python 3" in text
    assert "| work | 2e+03 | 1e+03 | 2.00 | 2.00 to 2.00 |" in text


def test_table_has_a_column_for_each_library_and_a_number_for_each_run(save_run, reports):
    groups = {"b cpu": {"impl": 1.0}, "a": {"reference": 2.0, "impl": 1.0, "impl held": 0.5}}
    publish([save_run("a.json", make_benchmark_run(groups))] * 2, folder=reports)
    lines = page_of(reports).splitlines()
    assert "| row | reference | impl | impl held | reference / impl | quartiles |" in lines
    assert "| b cpu | - | 1e+03, 1e+03 | - | - | - |" in lines
    assert "| a | 2e+03, 2e+03 | 1e+03, 1e+03 | 500, 500 | 2.00, 2.00 | 2.00 to 2.00 |" in lines


def test_rows_of_peak_memory_have_a_column_for_each_library(save_run, reports):
    run = make_benchmark_run({"work": {"reference": 2.0, "impl": 1.0, "impl held": 0.5}})
    for each in run["benchmarks"]:
        each["extra_info"]["peak_bytes"] = 2**20
    publish([save_run("a.json", run)], folder=reports)
    assert "| work (bytes) | 1 | 1 | 1 |" in page_of(reports)


def test_publishing_runs_of_two_machines_together_raises(save_run, reports):
    paths = [
        save_run("a.json", make_benchmark_run()),
        save_run("b.json", make_benchmark_run(torch="3")),
    ]
    with pytest.raises(ValueError, match="different machines"):
        publish(paths, folder=reports)
    assert not reports.exists()


def test_publishing_runs_of_different_benchmarks_together_raises(save_run, reports):
    more = make_benchmark_run()
    more["benchmarks"].append({**more["benchmarks"][0], "fullname": "bench_more[impl]"})
    paths = [save_run("a.json", make_benchmark_run()), save_run("b.json", more)]
    with pytest.raises(ValueError, match=r"b\.json and .*a\.json has bench_more\[impl\]"):
        publish(paths, folder=reports)
    assert not reports.exists()


def test_publishing_a_file_of_another_format_raises(save_run, reports):
    with pytest.raises(ValueError, match=r"a\.json was not written by"):
        publish([save_run("a.json", {})], folder=reports)
    with pytest.raises(ValueError, match="expected benchmarks"):
        publish([save_run("a.txt", {})], folder=reports)


def test_path_of_a_published_file_has_target_release_and_hardware(save_run, tmp_path, reports):
    saved = write_verdicts(tmp_path / "v.jsonl", {"a.one": "pass"}, torch="2.12.0+cu130")
    assert (
        publish([saved], folder=reports)
        == reports / "results" / "theirs" / "torch-2.12.0_sim.json"
    )
    named = publish([saved], "it", "h 200", folder=reports)
    assert named == reports / "results" / "it" / "torch-2.12.0_h-200.json"
    bench = publish([save_run("a.json", make_benchmark_run())], folder=reports)
    assert bench == reports / "benchmarks" / "impl" / "torch-2_sim.json"


def test_path_of_a_published_run_cannot_leave_the_folder(tmp_path, reports):
    about = {"target": "../../up", "accelerator": "/etc", "torch": "../../2"}
    saved = write_verdicts(tmp_path / "v.jsonl", {"a.one": "pass"}, **about)
    published = publish([saved], folder=reports)
    assert published == reports / "results" / "up" / "torch-..-..-2_-etc.json"


def test_the_readme_counts_only_runs_of_this_suite(tmp_path, reports):
    known = clauses.load()
    names = [name for name, each in known.items() if each.is_about_target]
    suite = clauses.suite_version(known)
    saved = write_verdicts(tmp_path / "v.jsonl", dict.fromkeys(names, "pass"), suite=suite)
    link = publish([saved], folder=reports).relative_to(reports.parent)
    readme, right = tmp_path / "README.md", f"{len(names)} of {len(names)}"
    readme.write_text(f"[{right}]({link})\n[5 of 9](reports/MATRIX.md), an earlier suite\n")
    assert list(check_readme(readme, reports)) == []
    readme.write_text(f"[1 of 2]({link})\n[5 of 9](reports/MATRIX.md)\n")
    unknown = f"README.md: 5 of 9 is not of a run of suite {suite}"
    assert list(check_readme(readme, reports)) == [
        f"README.md: 1 of 2; {link} has {right}",
        unknown,
    ]
