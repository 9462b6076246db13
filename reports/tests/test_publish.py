"""Publishing: the published data of a run, refused files, and the replacement of older reports."""

import json

import pytest

from reports.publishing.publish import publish
from reports.tests.samples import HOSTILE, make_benchmark_run, write_verdicts


@pytest.fixture
def save_run(tmp_path):
    """Return a function that saves a run of the benchmarks in a file."""

    def save(name, run):
        path = tmp_path / name
        path.write_text(json.dumps(run))
        return path

    return save


@pytest.fixture
def results(tmp_path):
    """Return the path of the folder of all reports. The folder does not exist yet."""
    return tmp_path / "results"


def test_benchmark_report_has_no_samples_and_no_name_of_the_machine(save_run, results):
    report = publish([save_run("a.json", make_benchmark_run())], folder=results)
    text = (report / "benchmark.json").read_text()
    assert "private" not in text
    (published,) = json.loads(text)["runs"]
    stats = {"min": 2.0, "q1": 2.0, "median": 2.0, "q3": 2.0, "rounds": 3}
    assert published["benchmarks"][0]["stats"] == stats


def test_summary_has_date_machine_versions_and_milliseconds(save_run, results):
    report = publish([save_run("a.json", make_benchmark_run())], "it", "sim", folder=results)
    text = (report / "summary.md").read_text()
    assert text.startswith("# it, torch 2, sim\n\n2026-01-02. Fast, 2 cores, sim:0; torch 2,")
    assert "| work | 2e+03 | 1e+03 | 2.00 | 2.00 to 2.00 | - |" in text


def test_runs_of_one_machine_are_published_in_one_report(save_run, results):
    paths = [save_run(f"{name}.json", make_benchmark_run()) for name in "abc"]
    report = publish(paths, folder=results)
    assert "| 2.00, 2.00, 2.00 |" in (report / "summary.md").read_text()
    assert json.loads((report / "environment.json").read_text())["runs"] == 3


def test_publishing_runs_of_two_machines_together_raises(save_run, results):
    paths = [
        save_run("a.json", make_benchmark_run()),
        save_run("b.json", make_benchmark_run(torch="3")),
    ]
    with pytest.raises(ValueError, match="different machines"):
        publish(paths, folder=results)
    assert not results.exists()


def test_publishing_a_noisy_run_raises(save_run, results):
    noisy = make_benchmark_run()
    noisy["benchmarks"][-1]["extra_info"]["processor_share"] = 0.5
    paths = [save_run("a.json", make_benchmark_run()), save_run("b.json", noisy)]
    with pytest.raises(ValueError, match="too noisy to judge: 1, such as work"):
        publish(paths, folder=results)
    assert not results.exists()


def test_publishing_runs_of_different_benchmarks_together_raises(save_run, results):
    more = make_benchmark_run()
    more["benchmarks"].append({**more["benchmarks"][0], "fullname": "bench_more[impl]"})
    paths = [save_run("a.json", make_benchmark_run()), save_run("b.json", more)]
    with pytest.raises(ValueError, match=r"b\.json and .*a\.json has bench_more\[impl\]"):
        publish(paths, folder=results)
    assert not results.exists()


def test_publishing_a_file_of_another_format_raises(save_run, results):
    with pytest.raises(ValueError, match=r"a\.json was not written by"):
        publish([save_run("a.json", {})], folder=results)
    with pytest.raises(ValueError, match="expected benchmarks"):
        publish([save_run("a.txt", {})], folder=results)


def test_path_of_a_report_has_target_release_and_hardware(save_run, tmp_path, results):
    saved = write_verdicts(tmp_path / "v.jsonl", {"a.one": "pass"}, torch="2.12.0+cu130")
    assert publish([saved], folder=results) == results / "theirs" / "torch-2.12.0_sim"
    assert publish([saved], "it", "h 200", folder=results) == results / "it" / "torch-2.12.0_h-200"
    bench = publish([save_run("a.json", make_benchmark_run())], folder=results)
    assert bench == results / "impl" / "torch-2_sim_bench"


def test_new_report_replaces_every_file_of_the_older_one(tmp_path, results):
    verdict = {"a.one": "pass"}
    old = publish(
        [write_verdicts(tmp_path / "v.jsonl", {**verdict, "a.two": "fail"})], folder=results
    )
    (old / "leftover.txt").touch()
    new = publish(
        [write_verdicts(tmp_path / "v.jsonl", verdict, date="2026-02-03T00:00:00")], folder=results
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


def test_refused_file_leaves_the_older_report_unchanged(tmp_path, results):
    report = publish([write_verdicts(tmp_path / "v.jsonl", {"a.one": "pass"})], folder=results)
    before = (report / "verdicts.jsonl").read_text()
    (tmp_path / "v.jsonl").write_text(before + "{}\n")
    with pytest.raises(ValueError, match="'test' is a required property"):
        publish([tmp_path / "v.jsonl"], folder=results)
    assert (report / "verdicts.jsonl").read_text() == before


def _hostile_run(text):
    """Return a run of the benchmarks with ``text`` in every field that is a text."""
    run = make_benchmark_run(torch=text, python_version=text, devices=[text])
    run["machine_info"]["cpu"]["brand_raw"] = text
    run["commit_info"]["id"] = run["datetime"] = text
    for each in run["benchmarks"]:
        each["group"] = text
    return run


def test_summary_of_benchmarks_escapes_every_text(save_run, results):
    text = HOSTILE.rstrip("\x07")
    run = _hostile_run(text)
    run["benchmarks"].append({**run["benchmarks"][0], "extra_info": {"library": text}})
    report = publish([save_run("a.json", run)], "impl", text, folder=results)
    text = (report / "summary.md").read_text()
    assert "<" not in text
    assert text.count("&lt;script>") >= 5
    assert report.parent == results / "impl"


def test_benchmark_report_cannot_be_written_outside_the_results_folder(save_run, tmp_path):
    saved = save_run("a.json", _hostile_run("../../../up"))
    report = publish([saved], "../../up", "/etc", folder=tmp_path / "results")
    assert report.parent == tmp_path / "results" / "up"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "results"]


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("datetime",), "d"),
        (("machine_info", "torch"), "2" * 300),
        (("benchmarks", 0, "group"), "g" * 30_000_000),
        (("benchmarks", 0, "group"), "\x1b[31m"),
        (("benchmarks", 1, "stats", "median"), 5e-324),
        (("benchmarks", 1, "stats", "median"), 1e308),
        (("benchmarks", 1, "extra_info", "peak_bytes"), None),
        (("commit_info",), {}),
    ],
    ids=["date", "version", "long", "control", "tiny", "huge", "null", "commit"],
)
def test_run_with_a_wrong_value_is_not_published(save_run, results, place, value):
    run = make_benchmark_run()
    inner = run
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    path = save_run("a.json", run)
    with pytest.raises(ValueError, match=r"a\.json") as caught:
        publish([path], folder=results)
    path.unlink()
    assert len(str(caught.value)) < len(str(path)) + 300
    assert not results.exists()


def test_runs_with_different_rows_are_not_published_together(save_run, results):
    other = make_benchmark_run()
    other["benchmarks"][0]["group"] = "other"
    paths = [save_run("a.json", make_benchmark_run()), save_run("b.json", other)]
    with pytest.raises(ValueError, match="have different ratios"):
        publish(paths, folder=results)
    assert not results.exists()
