"""Broken and foreign files of results are refused with one sentence."""

import json

import pytest

from reports.publishing.publish import publish
from spec_tests.site import checked

RUN = {
    "format": 1,
    "target": "theirs",
    "version": "3.1",
    "torch": "2.12.0",
    "python": "3.12.1",
    "accelerator": "xpu",
    "date": "2026-01-02T03:04:05+00:00",
}
TEST = {"test": "t", "verdict": "pass", "clause": "comm.scatter.slices"}


@pytest.fixture
def saved(tmp_path):
    """Write lines to a file of verdicts; lines other than text are written as JSON."""

    def save(*lines):
        path = tmp_path / "verdicts.jsonl"
        texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        path.write_text("\n".join(texts) + "\n")
        return path

    return save


def test_header_is_the_first_line(saved):
    assert checked.verdicts(saved({"run": RUN}, TEST)) == (RUN, [TEST])


def test_file_without_a_header_has_an_empty_one(saved):
    assert checked.verdicts(saved(TEST)) == ({}, [TEST])


@pytest.mark.parametrize(
    ("lines", "sentence"),
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
        ([json.dumps(TEST)[:20]], "line 1 is not JSON: "),
        ([], "contains no verdicts"),
        ([{"run": RUN}], "contains no verdicts"),
        ([{"run": RUN}, TEST, {"run": RUN}, TEST], "contains 2 runs"),
    ],
)
def test_broken_file_is_refused_with_one_sentence(saved, lines, sentence):
    with pytest.raises(checked.RefusedError) as caught:
        checked.verdicts(saved(*lines))
    assert sentence in str(caught.value)
    assert "verdicts.jsonl" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_unreadable_file_is_refused(tmp_path):
    path = tmp_path / "picture.jsonl"
    path.write_bytes(b"\x89PNG\xff")
    with pytest.raises(checked.RefusedError, match="cannot be read"):
        checked.verdicts(path)
    with pytest.raises(checked.RefusedError, match="cannot be read"):
        checked.verdicts(tmp_path / "none.jsonl")


def test_report_keeps_the_environment_of_the_header(saved, tmp_path):
    report = publish([saved({"run": RUN}, TEST)], folder=tmp_path / "reports")
    about = checked.document(report / "environment.json", "environment")
    assert {key: about[key] for key in ("torch", "python", "version", "date")} == {
        key: RUN[key] for key in ("torch", "python", "version", "date")
    }
    assert "commit" not in about  # the commit of this checkout is not that of the run


def test_broken_file_is_not_published(saved, tmp_path):
    with pytest.raises(ValueError, match="line 2: verdict"):
        publish([saved(TEST, {**TEST, "verdict": "?"})], folder=tmp_path / "reports")
    assert not (tmp_path / "reports").exists()


def test_names_from_a_file_cannot_leave_the_folder(saved, tmp_path):
    run = {**RUN, "target": "../../up", "accelerator": "/etc", "torch": "../../2"}
    report = publish([saved({"run": run}, TEST)], folder=tmp_path / "reports")
    assert report == tmp_path / "reports" / "up" / "torch-..-..-2_-etc"
