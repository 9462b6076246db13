"""What is drawn of benchmarks, in the colours of the page, and the numbers behind it."""

import re
from xml.etree import ElementTree

import pytest

from reports import samples
from spec_tests.site import charts, runs, speed


@pytest.fixture
def shelf(tmp_path):
    """Publications of benchmarks, one for each mapping of groups."""

    def publish(*groups):
        for place, each in enumerate(groups):
            samples.benchmarks(tmp_path / f"{place}_bench", each)
        return runs.load(tmp_path)

    return publish


def _times(reference, impl, **more):
    return {"reference": reference, "impl": impl, **more}


def _texts(picture):
    return [each.text for each in ElementTree.fromstring(picture).iter() if each.text]


def test_a_row_is_the_median_of_its_runs_and_the_widest_quartiles(shelf):
    found = shelf({"work": _times(2.0, 1.0)})
    (bench,) = found.benches
    (run,) = bench.data["runs"]
    slower = {**run, "benchmarks": [dict(each) for each in run["benchmarks"]]}
    slower["benchmarks"][0] = {
        **slower["benchmarks"][0],
        "stats": {"q1": 4.0, "median": 5.0, "q3": 6.0},
    }
    three = runs.Bench("b", {}, {"runs": [run, run, slower]})
    row = speed.rows(three, {"work": 1.5})[0]
    assert (row.value, row.floor, list(row.each)) == (2.0, 1.5, [2.0, 2.0, 5.0])
    assert row.low == pytest.approx(1.8 / 1.1)
    assert row.high == pytest.approx(6.0 / 0.9)


def test_names_that_differ_by_a_size_make_a_curve(shelf):
    groups = {f"forward blocks={n} devices=4": _times(2.0 * n, n, module=1.0) for n in (100, 10)}
    (bench,) = shelf({**groups, "forward blocks=10 devices=2": _times(1.0, 1.0)}).benches
    found = {(curve.name, curve.unit): curve.points for curve in speed.curves(bench)}
    blocks = found["forward devices=4", "blocks of four modules"]
    assert [(point.size, point.value) for point in blocks["reference"]] == [(10, 20), (100, 200)]
    assert [(point.size, point.value) for point in blocks["module"]] == [(10, 1), (100, 1)]
    devices = found["forward blocks=10", "devices"]
    assert [(point.size, point.value) for point in devices["impl"]] == [(2, 1), (4, 10)]
    assert "module" not in devices  # timed at one size only


def test_a_trend_has_every_publication_oldest_first(shelf):
    found = shelf({"work": _times(2.0, 1.0)}, {"work": _times(3.0, 1.0)}, {"other": _times(1, 1)})
    history = speed.trends(found.benches, {})["work"]
    assert [(bench.name, row.value) for bench, row in history] == [
        ("0_bench", 2.0),
        ("1_bench", 3.0),
    ]


def test_peak_memory_is_bytes_by_library(shelf):
    (bench,) = shelf({"work": _times(2.0, 1.0)}).benches
    assert speed.peaks(bench) == [speed.Peak("work", {"reference": 2000.0, "impl": 1000.0})]


@pytest.fixture
def pictures(shelf):
    """One picture of each kind."""
    groups = {f"forward blocks={n}": _times(2.0 * n, n, module=1.0) for n in (10, 100)}
    found = shelf({**groups, "copy": _times(0.5, 0.2)})
    (bench,) = found.benches
    rows = speed.rows(bench, {"copy": 1.2})
    (group, history), *_ = speed.trends(found.benches, {}).items()
    return {
        "ratio": charts.ratio_chart(rows),
        "curve": charts.curve_chart(speed.curves(bench)[0]),
        "memory": charts.memory_chart(speed.peaks(bench)[0]),
        "trend": charts.trend_chart(group, history),
    }


@pytest.mark.parametrize("kind", ["ratio", "curve", "memory", "trend"])
def test_a_picture_takes_its_colours_from_the_page(pictures, kind):
    picture = pictures[kind]
    assert "currentColor" in picture
    assert "var(--impl)" in picture
    assert set(re.findall(r"#[0-9a-f]{6}\b", picture)) <= {"#ffffff", "#000000"}
    assert "#ffffff" not in picture.lower()
    assert "<style" not in picture  # it would hold for the whole page


def test_axes_of_sizes_are_logarithmic_and_every_library_has_its_marker(pictures):
    texts = _texts(pictures["curve"])
    assert {"10", "100", "torch.nn.parallel", "impl", "plain module"} <= set(texts)
    assert len(set(re.findall(r'<path id="[^"]*-m[0-9a-f]{10}"', pictures["curve"]))) >= 3


def test_the_text_of_a_picture_is_text(shelf):
    (bench,) = shelf({f"{samples.HOSTILE} n=1": _times(2.0, 1.0)}).benches
    picture = charts.ratio_chart(speed.rows(bench, {}))
    assert "<script" not in picture
    assert any("<script>alert('x')</script>" in text for text in _texts(picture))


def test_a_ratio_that_no_axis_can_show_is_left_out(shelf):
    groups = {"as fast": _times(2.0, 1.0, module=1.0), "slower": _times(2.0, 1.0)}
    (bench,) = shelf(groups).benches
    texts = _texts(charts.ratio_chart(speed.rows(bench, {})))
    assert "slower" in texts
    assert "as fast" not in texts
