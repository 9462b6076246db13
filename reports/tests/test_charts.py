"""The chart and the table of benchmarks."""

import json
from xml.etree import ElementTree

import pytest

from reports.publishing import benchmarks, charts
from reports.publishing.publish import publish
from reports.tests import samples


@pytest.fixture
def load_report(tmp_path):
    """Return a function that writes a report with the given medians, and loads it."""

    def write_and_load(groups):
        (tmp_path / "a.json").write_text(json.dumps(samples.make_benchmark_run(groups)))
        publish([tmp_path / "a.json"], folder=tmp_path)
        (report,) = benchmarks.load(tmp_path)
        return report

    return write_and_load


def test_table_has_a_column_for_each_library_and_a_number_for_each_run(load_report):
    groups = {"b cpu": {"impl": 1.0}, "a": {"reference": 2.0, "impl": 1.0, "impl held": 0.5}}
    report = load_report(groups)
    report[1]["runs"].append(report[1]["runs"][0])
    lines = benchmarks.format_page([report]).splitlines()
    assert "| row | reference | impl | impl held | reference / impl | quartiles | floor |" in lines
    assert "| b cpu | - | 1e+03, 1e+03 | - | - | - | - |" in lines
    assert (
        "| a | 2e+03, 2e+03 | 1e+03, 1e+03 | 500, 500 | 2.00, 2.00 | 2.00 to 2.00 | - |" in lines
    )


def test_chart_has_a_series_for_each_variant_of_impl(load_report):
    report = load_report(
        {
            "model a": {"reference": 2.0, "impl": 1.0, "impl held": 0.5, "one device": 3.0},
            "model b cpu": {"impl": 1.0, "one device": 2.0},
        }
    )
    chart = charts.draw_ratios(benchmarks.rows(report[1], {}))
    texts = {each.text for each in ElementTree.fromstring(chart).iter()}
    assert {"impl", "impl held", "model a"} <= texts
    # torch.nn.parallel, with which the chart compares, does not run on the CPU.
    assert not {"model b cpu", "one device"} & texts
