"""Pictures of benchmarks, and the numbers that they show."""

import re
from xml.etree import ElementTree

import pytest

from reports.tests import samples
from spec_tests.site import charts, runs, speed


@pytest.fixture
def bench_of(tmp_path):
    """Publish one report of benchmarks and load it."""

    def publish(groups):
        samples.benchmark_report(tmp_path / "results" / "impl" / "a_bench", groups)
        (bench,) = runs.load(tmp_path).benches
        return bench

    return publish


def _times(reference, impl, **more):
    return {"reference": reference, "impl": impl, **more}


def _texts(picture):
    return [each.text for each in ElementTree.fromstring(picture).iter() if each.text]


def test_row_is_the_median_of_its_runs_with_the_widest_quartiles(bench_of):
    bench = bench_of({"work": _times(2.0, 1.0)})
    (run,) = bench.data["runs"]
    slower = {**run, "benchmarks": [dict(each) for each in run["benchmarks"]]}
    slower["benchmarks"][0] = {
        **slower["benchmarks"][0],
        "stats": {"q1": 4.0, "median": 5.0, "q3": 6.0},
    }
    three = runs.BenchmarkReport("b", {}, {"runs": [run, run, slower]})
    row = speed.rows(three, {"work": 1.5})[0]
    assert (row.value, row.floor, list(row.each)) == (2.0, 1.5, [2.0, 2.0, 5.0])
    assert row.low == pytest.approx(1.8 / 1.1)
    assert row.high == pytest.approx(6.0 / 0.9)


def test_groups_that_differ_by_one_size_make_a_curve(bench_of):
    groups = {f"forward blocks={n} devices=4": _times(2.0 * n, n, module=1.0) for n in (100, 10)}
    bench = bench_of({**groups, "forward blocks=10 devices=2": _times(1.0, 1.0)})
    found = {(curve.name, curve.unit): curve.points for curve in speed.curves(bench)}
    blocks = found["forward devices=4", "blocks of four modules"]
    assert [(point.size, point.value) for point in blocks["reference"]] == [(10, 20), (100, 200)]
    assert [(point.size, point.value) for point in blocks["module"]] == [(10, 1), (100, 1)]
    devices = found["forward blocks=10", "devices"]
    assert [(point.size, point.value) for point in devices["impl"]] == [(2, 1), (4, 10)]
    assert "module" not in devices  # timed at one size only


def test_peak_memory_is_bytes_by_library(bench_of):
    bench = bench_of({"work": _times(2.0, 1.0)})
    assert speed.peaks(bench) == [speed.Peak("work", {"reference": 2000.0, "impl": 1000.0})]


@pytest.fixture
def pictures(bench_of):
    """One picture of each kind."""
    groups = {f"forward blocks={n}": _times(2.0 * n, n, module=1.0) for n in (10, 100)}
    bench = bench_of({**groups, "copy": _times(0.5, 0.2)})
    rows = speed.rows(bench, {"copy": 1.2})
    return {
        "ratio": charts.ratio_chart(rows, "b"),
        "curve": charts.curve_chart(speed.curves(bench)[0], "b"),
        "memory": charts.memory_chart(speed.peaks(bench)[0], "b"),
    }


@pytest.mark.parametrize("kind", ["ratio", "curve", "memory"])
def test_picture_takes_its_colours_from_the_page(pictures, kind):
    picture = pictures[kind]
    assert "currentColor" in picture
    assert "var(--impl)" in picture
    assert set(re.findall(r"#[0-9a-f]{6}\b", picture)) <= {"#ffffff", "#000000"}
    assert "#ffffff" not in picture.lower()
    assert "<style" not in picture  # it would apply to the whole page


def test_curve_has_logarithmic_axes_and_a_marker_for_each_library(pictures):
    texts = _texts(pictures["curve"])
    assert {"10", "100", "torch.nn.parallel", "impl", "plain module"} <= set(texts)
    assert len(set(re.findall(r'<path id="[^"]*-m[0-9a-f]{10}"', pictures["curve"]))) >= 3


def test_names_in_a_picture_are_escaped(bench_of):
    bench = bench_of({f"{samples.HOSTILE} n=1": _times(2.0, 1.0)})
    picture = charts.ratio_chart(speed.rows(bench, {}), "b")
    assert "<script" not in picture
    assert any("<script>alert('x')</script>" in text for text in _texts(picture))


def test_infinite_ratio_is_left_out(bench_of):
    groups = {"as fast": _times(2.0, 1.0, module=1.0), "slower": _times(2.0, 1.0)}
    bench = bench_of(groups)
    texts = _texts(charts.ratio_chart(speed.rows(bench, {}), "b"))
    assert "slower" in texts
    assert "as fast" not in texts
