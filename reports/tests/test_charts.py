"""The charts of benchmarks, and the numbers that they show."""

import re
from xml.etree import ElementTree

import pytest

from reports.publishing import benchmark_reports, charts, speed
from reports.publishing.benchmarks import draw_charts
from reports.tests import samples

#: The files of benchmarks have no control characters.
HOSTILE = samples.HOSTILE.rstrip("\x07")


@pytest.fixture
def load_report(tmp_path):
    """Return a function that writes a report with the given medians, and loads it."""

    def write_and_load(groups):
        samples.write_benchmark_report(tmp_path / "benchmarks" / "impl" / "a.json", groups)
        (report,) = benchmark_reports.load(tmp_path)
        return report

    return write_and_load


def _medians(reference, impl, **others):
    return {"reference": reference, "impl": impl, **others}


def _texts(chart):
    """Return the texts in a chart (SVG)."""
    return [each.text for each in ElementTree.fromstring(chart).iter() if each.text]


def test_row_shows_the_median_of_the_runs_ratios_and_the_widest_quartiles(load_report):
    report = load_report({"work": _medians(2.0, 1.0)})
    (run,) = report.data["runs"]
    slower = {**run, "benchmarks": [dict(each) for each in run["benchmarks"]]}
    slower["benchmarks"][0] = {
        **slower["benchmarks"][0],
        "stats": {"q1": 4.0, "median": 5.0, "q3": 6.0},
    }
    row = speed.rows({"runs": [run, run, slower]}, {"work": 1.5})[0]
    assert (row.value, row.floor, list(row.each)) == (2.0, 1.5, [2.0, 2.0, 5.0])
    assert row.low == pytest.approx(1.8 / 1.1)
    assert row.high == pytest.approx(6.0 / 0.9)


def test_times_by_size_combine_groups_whose_names_differ_in_one_number(load_report):
    groups = {f"forward blocks={n} devices=4": _medians(2.0 * n, n, module=1.0) for n in (100, 10)}
    report = load_report({**groups, "forward blocks=10 devices=2": _medians(1.0, 1.0)})
    points = {(times.name, times.unit): times.points for times in speed.times_by_size(report.data)}
    blocks = points["forward devices=4", "blocks of four modules"]
    assert [(point.size, point.value) for point in blocks["reference"]] == [(10, 20), (100, 200)]
    assert [(point.size, point.value) for point in blocks["module"]] == [(10, 1), (100, 1)]
    devices = points["forward blocks=10", "devices"]
    assert [(point.size, point.value) for point in devices["impl"]] == [(2, 1), (4, 10)]
    assert "module" not in devices  # The plain module was timed for one number of devices only.


def test_peaks_contain_the_peak_memory_of_each_library(load_report):
    report = load_report({"work": _medians(2.0, 1.0)})
    assert speed.peaks(report.data) == [speed.Peak("work", {"reference": 2000.0, "impl": 1000.0})]


@pytest.fixture
def chart_by_kind(load_report):
    """Return one chart of each kind."""
    groups = {f"forward blocks={n}": _medians(2.0 * n, n, module=1.0) for n in (10, 100)}
    report = load_report({**groups, "copy": _medians(0.5, 0.2)})
    rows = speed.rows(report.data, {"copy": 1.2})
    return {
        "ratio": charts.ratio_chart(rows, "b"),
        "size": charts.size_chart(speed.times_by_size(report.data)[0], "b"),
        "memory": charts.memory_chart(speed.peaks(report.data)[0], "b"),
    }


@pytest.mark.parametrize("kind", ["ratio", "size", "memory"])
def test_chart_uses_the_colours_of_the_page(chart_by_kind, kind):
    chart = chart_by_kind[kind]
    assert "currentColor" in chart
    assert "var(--impl)" in chart
    assert set(re.findall(r"#[0-9a-f]{6}\b", chart)) <= {"#ffffff", "#000000"}
    assert "#ffffff" not in chart.lower()
    assert "<style" not in chart  # A style in an inline SVG would apply to the whole page.


def test_curve_has_logarithmic_axes_and_a_marker_for_each_library(chart_by_kind):
    texts = _texts(chart_by_kind["size"])
    assert {"10", "100", "torch.nn.parallel", "impl", "plain module"} <= set(texts)
    assert len(set(re.findall(r'<path id="[^"]*-m[0-9a-f]{10}"', chart_by_kind["size"]))) >= 3


def test_names_in_a_chart_are_escaped(load_report):
    report = load_report({f"{HOSTILE} n=1": _medians(2.0, 1.0)})
    chart = charts.ratio_chart(speed.rows(report.data, {}), "b")
    assert "<script" not in chart
    assert any("<script>alert('x')</script>" in text for text in _texts(chart))


def test_variant_chart_has_a_series_for_each_variant_of_impl(load_report):
    variants = {"impl held": 0.5, "one device": 3.0}
    report = load_report(
        {
            "model a": _medians(2.0, 1.0, **variants),
            "model b cpu": {"impl": 1.0, "one device": 2.0},
        }
    )
    groups = speed.variants(report.data)
    assert [each.group for each in groups] == ["model a", "model b cpu"]
    texts = _texts(charts.variant_chart(groups, "b"))
    assert {"impl", "impl held", "model a"} <= set(texts)
    # torch.nn.parallel, with which the chart compares, does not run on the CPU.
    assert "model b cpu" not in texts


def test_captions_have_the_numbers_of_sizes_and_peaks(load_report):
    groups = {f"forward blocks={n}": _medians(2.0 * n, n) for n in (10, 100)}
    report = load_report(groups)
    html = draw_charts(report, {})
    captions = re.findall("<figcaption>(.*?)</figcaption>", html)
    assert captions[1:] == [
        "forward: time in ms at each size (blocks of four modules). "
        "reference 10: 2e+04, 100: 2e+05; impl 10: 1e+04, 100: 1e+05.",
        "forward blocks=10: peak memory. reference 0.0 MiB, impl 0.0 MiB.",
        "forward blocks=100: peak memory. reference 0.2 MiB, impl 0.1 MiB.",
    ]
    assert html.count("<svg") == len(captions)
