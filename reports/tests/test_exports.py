"""Exported data (CSV, JSON lines, badges), MATRIX.md, and the command that adds a run."""

import csv
import io
import json

import pytest

from reports import __main__ as command
from reports.publishing.pages import render_matrix
from reports.tests import samples
from spec_tests.harness.conformance import clauses
from spec_tests.site import checked, exports, markdown, runs
from spec_tests.site.matrix import Matrix

ONE, TWO = "comm.scatter.slices", "comm.scatter.zero-sizes"


@pytest.fixture
def run(tmp_path):
    """Load a run whose clauses have these verdicts."""

    def make_run(tests, **about):
        path = samples.verdicts(tmp_path / "v.jsonl", tests, **about)
        return runs.load(None, [path]).runs[0]

    return make_run


def _rows(text):
    return list(csv.reader(io.StringIO(text, newline="")))


def test_csv_of_a_run_has_a_row_for_each_test(run):
    head, first, second = _rows(exports.run_csv(run({ONE: "fail", TWO: "pass"})))
    assert head == ["clause", "test", "verdict", "reason", "difference", "call"]
    assert first == [ONE, first[1], "fail", "E", f"{ONE} differs", f"call({ONE!r})"]
    assert second[2:] == ["pass", "", "", ""]


def test_csv_of_the_matrix_has_a_column_for_each_run(run):
    found = run({ONE: "fail"})
    matrix = Matrix({name: clauses.load()[name] for name in (ONE, TWO)}, [found])
    rows = _rows(exports.matrix_csv(matrix))
    assert rows[0] == ["clause", "says", "basis", "source", found.label]
    assert [(row[0], row[-1]) for row in rows[1:]] == [(ONE, "fail"), (TWO, "")]


@pytest.mark.parametrize("start", list("=+-@\t\r"))
def test_csv_holds_no_formula(run, start):
    found = run({ONE: "pass"})
    test = {**found.tests[0], "call": f"{start}cmd()"}
    changed = runs.Run("r", found.about, [test])
    assert _rows(exports.run_csv(changed))[1][-1] == f"'{start}cmd()"


def test_json_lines_of_a_run_are_a_file_of_verdicts(run, tmp_path):
    tests = {ONE: "fail", TWO: "not-run"}
    found = run(tests)
    (tmp_path / "again.jsonl").write_text(exports.run_jsonl(found))
    about, again = checked.verdicts(tmp_path / "again.jsonl")
    assert again == list(found.tests)
    assert about["torch"] == found.about["torch"]


@pytest.mark.parametrize(
    ("verdicts", "message", "colour"),
    [
        (["pass", "pass"], "2 pass", "brightgreen"),
        (["pass", "not-run"], "1 pass, 1 not-run", "brightgreen"),
        (["known", "pass"], "1 pass, 1 known", "yellow"),
        (["not-offered", "known"], "1 not-offered, 1 known", "orange"),
        (["fail", "not-offered"], "1 fail, 1 not-offered", "red"),
        (["not-run", "not-run"], "2 not-run", "lightgrey"),
    ],
)
def test_badge_has_the_colour_of_the_worst_verdict(run, verdicts, message, colour):
    found = json.loads(exports.badge(run(dict(zip((ONE, TWO), verdicts, strict=True)))))
    assert (found["message"], found["color"]) == (message, colour)
    assert found["schemaVersion"] == 1


def test_committed_matrix_matches_the_published_runs():
    text = (command.HERE / "MATRIX.md").read_text(encoding="utf-8")
    assert text == render_matrix(command.HERE), "run python -m reports build"


def test_matrix_page_lists_only_clauses_that_a_run_does_not_pass(run):
    known = {name: clauses.load()[name] for name in (ONE, TWO)}
    text = markdown.page(Matrix(known, [run({ONE: "fail", TWO: "pass"}, target="a|<b>")]))
    assert f"| `{ONE}` | fail |" in text
    assert TWO not in text
    assert "a&#124;&lt;b> 1.0" in text


def test_matrix_page_compares_runs_of_one_suite(tmp_path):
    for name, date, suite in [("old", "2026-01-01", "1 clauses, a"), ("new", "2026-01-02", "b")]:
        report = tmp_path / "results" / name / "torch-2.12.0_sim"
        samples.verdict_report(report, {ONE: "fail"}, target=name, date=date, suite=suite)
    text = render_matrix(tmp_path)
    assert "| [1](results/new/torch-2.12.0_sim/summary.md) | new | 2.12.0 | sim | b | 1 |" in text
    assert (
        "Runs of other versions of the suite: [old · torch 2.12.0 · sim]"
        "(results/old/torch-2.12.0_sim/summary.md) (1 clauses, a)." in text
    )
    assert f"| `{ONE}` | fail |\n" in text


def test_file_of_verdicts_is_added_with_one_command(tmp_path, capsys):
    file = samples.verdicts(tmp_path / "sent.jsonl", {ONE: "fail"}, target="theirs", torch="2.12")
    folder = tmp_path / "reports"
    assert command.main(["add", str(file)], folder=folder) == 0
    matrix = (folder / "site" / "matrix.html").read_text(encoding="utf-8")
    assert "theirs 1.0 · torch 2.12 · sim" in matrix
    assert "| theirs 1.0 | 2.12 | sim |" in (folder / "MATRIX.md").read_text(encoding="utf-8")
    assert str(folder / "results" / "theirs" / "torch-2.12_sim") in capsys.readouterr().out


def test_broken_file_is_not_added(tmp_path, capsys):
    (tmp_path / "sent.jsonl").write_text('{"run": {"format": 7}}\n')
    assert command.main(["add", str(tmp_path / "sent.jsonl")], folder=tmp_path / "reports") == 1
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not (tmp_path / "reports").exists()
