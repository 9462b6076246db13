"""What stands beside the pages: CSV, JSON lines, badges, and the page of Markdown."""

import csv
import io
import json
from pathlib import Path

import pytest

from reports import __main__ as command
from reports import samples
from spec_tests.harness.conformance import clauses
from spec_tests.site import checked, exports, markdown, runs
from spec_tests.site.matrix import Matrix

REPORTS = Path(__file__).parent
ONE, TWO = "comm.scatter.slices", "comm.scatter.zero-sizes"


@pytest.fixture
def run(tmp_path):
    """A run whose tests have the verdicts given."""

    def make_run(tests, **about):
        path = samples.verdicts(tmp_path / "v.jsonl", tests, **about)
        return runs.load(None, [path]).runs[0]

    return make_run


def _rows(text):
    return list(csv.reader(io.StringIO(text, newline="")))


def test_a_run_as_csv_has_a_row_for_each_test(run):
    head, first, second = _rows(exports.run_csv(run({ONE: "fail", TWO: "pass"})))
    assert head == ["clause", "test", "verdict", "reason", "difference", "call"]
    assert first == [ONE, first[1], "fail", "E", f"{ONE} differs", f"call({ONE!r})"]
    assert second[2:] == ["pass", "", "", ""]


def test_the_matrix_as_csv_has_a_column_for_each_run(run):
    found = run({ONE: "fail"})
    matrix = Matrix({name: clauses.load()[name] for name in (ONE, TWO)}, [found])
    rows = _rows(exports.matrix_csv(matrix))
    assert rows[0] == ["clause", "says", "basis", "source", found.label]
    assert [(row[0], row[-1]) for row in rows[1:]] == [(ONE, "fail"), (TWO, "")]


@pytest.mark.parametrize("start", list("=+-@\t\r"))
def test_no_cell_is_a_formula(run, start):
    found = run({ONE: "pass"})
    test = {**found.tests[0], "call": f"{start}cmd()"}
    changed = runs.Run("r", found.about, [test])
    assert _rows(exports.run_csv(changed))[1][-1] == f"'{start}cmd()"


def test_a_run_as_json_lines_is_a_file_of_verdicts(run, tmp_path):
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
def test_a_badge_shows_the_gravest_verdict(run, verdicts, message, colour):
    found = json.loads(exports.badge(run(dict(zip((ONE, TWO), verdicts, strict=True)))))
    assert (found["message"], found["color"]) == (message, colour)
    assert found["schemaVersion"] == 1


def test_the_page_of_markdown_is_that_of_the_published_runs():
    text = (REPORTS / "MATRIX.md").read_text(encoding="utf-8")
    assert text == command.matrix_page(REPORTS), "run python -m reports build"


def test_the_page_of_markdown_lists_what_not_all_pass(run):
    known = {name: clauses.load()[name] for name in (ONE, TWO)}
    text = markdown.page(Matrix(known, [run({ONE: "fail", TWO: "pass"}, target="a|<b>")]))
    assert f"| `{ONE}` | fail |" in text
    assert TWO not in text
    assert "a&#124;&lt;b> 1.0" in text


def test_a_strangers_run_is_added_with_one_command(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "HERE", tmp_path / "reports")
    file = samples.verdicts(tmp_path / "sent.jsonl", {ONE: "fail"}, target="theirs", torch="2.12")
    monkeypatch.setattr("sys.argv", ["reports", "add", str(file)])
    assert command.main() == 0
    assert "theirs 1.0 · torch 2.12 · sim" in (
        tmp_path / "reports" / "site" / "matrix.html"
    ).read_text(encoding="utf-8")
    assert "| theirs 1.0 | 2.12 | sim | 1 |" in (tmp_path / "reports" / "MATRIX.md").read_text()
    (folder,) = (tmp_path / "reports").glob("*_theirs_sim")
    assert str(folder) in capsys.readouterr().out


def test_a_broken_run_is_not_added(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "HERE", tmp_path / "reports")
    (tmp_path / "sent.jsonl").write_text('{"run": {"format": 7}}\n')
    monkeypatch.setattr("sys.argv", ["reports", "add", str(tmp_path / "sent.jsonl")])
    assert command.main() == 1
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not (tmp_path / "reports").exists()
