"""A broken file of results raises an error with a one-sentence text."""

import json
import os
from pathlib import Path

import pytest

from reports.publishing.publish import publish
from spec_tests.site import validated_files

#: The header of a file of verdicts.
RUN = {
    "format": 1,
    "target": "theirs",
    "version": "3.1",
    "torch": "2.12.0",
    "python": "3.12.1",
    "accelerator": "xpu",
    "date": "2026-01-02T03:04:05+00:00",
}
#: A line of a file of verdicts: a test and its verdict.
TEST = {"test": "t", "verdict": "pass", "clause": "comm.scatter.slices"}


@pytest.fixture
def save_lines(tmp_path):
    """Return a function that writes lines (texts, or dicts as JSON) to a file of verdicts."""

    def save(*lines):
        path = tmp_path / "verdicts.jsonl"
        texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        path.write_text("\n".join(texts) + "\n")
        return path

    return save


def test_first_line_is_returned_as_the_header(save_lines):
    assert validated_files.read_verdicts(save_lines({"run": RUN}, TEST)) == (RUN, [TEST])


def test_header_is_an_empty_dict_if_the_file_has_no_header(save_lines):
    assert validated_files.read_verdicts(save_lines(TEST)) == ({}, [TEST])


@pytest.mark.parametrize(
    ("lines", "error_text"),
    [
        ([{"run": {**RUN, "format": 2}}, TEST], "line 1: run.format: 1 was expected"),
        ([{"run": {}}, TEST], "line 1: run: 'format' is a required property"),
        ([{"run": RUN}, {**TEST, "verdict": "passed"}], "line 2: verdict: 'passed' is not one of"),
        ([TEST, {"test": "t"}], "line 2: 'verdict' is a required property"),
        ([{**TEST, "clause": "<script>"}], "line 1: clause: '<script>' does not match"),
        ([{**TEST, "call": 3}], "line 1: call: 3 is not of type 'string'"),
        (["[]"], "line 1: [] is not of type 'object'"),
        (["<html>"], "line 1 is not JSON: "),
        (["[" * 100_000], "line 1 is not JSON: "),
        (['{"test": "t", "test": "u"}'], "line 1 is not JSON: the key 'test' is repeated"),
        ([{**TEST, "seconds": float("nan")}], "line 1 is not JSON: the number NaN is not finite"),
        ([{**TEST, "reason": "\ud800"}], "line 1 is not JSON: 'utf-8' codec can't encode"),
        ([{**TEST, "declared": "a\n```\n<b>"}], "line 1: declared: "),
        ([{"run": {**RUN, "target": "t" * 1000}}, TEST], "line 1: run.target: "),
        ([json.dumps(TEST)[:20]], "line 1 is not JSON: "),
        ([], "contains no verdicts"),
        ([{"run": RUN}], "contains no verdicts"),
        ([{"run": RUN}, TEST, {"run": RUN}, TEST], "contains 2 runs"),
    ],
)
def test_broken_file_raises_an_error_that_names_the_file_and_the_line(
    save_lines, lines, error_text
):
    with pytest.raises(validated_files.RefusedError) as caught:
        validated_files.read_verdicts(save_lines(*lines))
    assert error_text in str(caught.value)
    assert "verdicts.jsonl" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_unreadable_or_missing_file_raises_refused_error(tmp_path):
    path = tmp_path / "picture.jsonl"
    path.write_bytes(b"\x89PNG\xff")
    with pytest.raises(validated_files.RefusedError, match="cannot be read"):
        validated_files.read_verdicts(path)
    with pytest.raises(validated_files.RefusedError, match="cannot be read"):
        validated_files.read_verdicts(tmp_path / "none.jsonl")


def test_pipe_or_device_raises_refused_error(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(validated_files.RefusedError, match="it is not a regular file"):
            validated_files.document(path, "benchmark")


@pytest.mark.parametrize("ratio", [1e300, 10**400, -1, "1"])
def test_trend_with_a_wrong_ratio_is_refused(tmp_path, ratio):
    report = {"date": "d", "commit": "c", "processor": "p", "ratios": {"row": [ratio]}}
    (tmp_path / "trend.json").write_text(json.dumps([report]))
    with pytest.raises(validated_files.RefusedError, match=r"trend\.json: 0\.ratios\.row\.0: "):
        validated_files.document(tmp_path / "trend.json", "trend")


def test_report_repeats_the_environment_from_the_header_of_the_verdicts(save_lines, tmp_path):
    report = publish([save_lines({"run": RUN}, TEST)], folder=tmp_path / "reports")
    environment = validated_files.document(report / "environment.json", "environment")
    assert {key: environment[key] for key in ("torch", "python", "version", "date")} == {
        key: RUN[key] for key in ("torch", "python", "version", "date")
    }
    assert "commit" not in environment  # The run may come from another commit than the checkout.


def test_broken_file_is_not_published(save_lines, tmp_path):
    with pytest.raises(ValueError, match="line 2: verdict"):
        publish([save_lines(TEST, {**TEST, "verdict": "?"})], folder=tmp_path / "reports")
    assert not (tmp_path / "reports").exists()


def test_target_with_a_relative_path_cannot_write_outside_the_reports_folder(save_lines, tmp_path):
    run = {**RUN, "target": "../../up", "accelerator": "/etc", "torch": "../../2"}
    report = publish([save_lines({"run": run}, TEST)], folder=tmp_path / "reports")
    assert report == tmp_path / "reports" / "up" / "torch-..-..-2_-etc"
