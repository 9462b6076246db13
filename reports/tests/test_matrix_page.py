"""MATRIX.md, and the command `python -m reports add`."""

import pytest

from reports import __main__ as command
from reports.publishing.pages import render_matrix
from reports.tests import samples
from spec_tests.harness.conformance import clauses
from spec_tests.site import markdown, runs
from spec_tests.site.matrix import Matrix

ONE, TWO = "comm.scatter.slices", "comm.scatter.zero-sizes"


@pytest.fixture
def load_run(tmp_path):
    """Return a function that writes and loads a run with the given verdicts of clauses."""

    def write_and_load(tests, **about):
        path = samples.write_verdicts(tmp_path / "v.jsonl", tests, **about)
        return runs.load(None, [path]).runs[0]

    return write_and_load


def test_committed_matrix_matches_the_published_runs():
    text = (command.HERE / "MATRIX.md").read_text(encoding="utf-8")
    assert text == render_matrix(command.HERE), "run python -m reports build"


def test_matrix_page_lists_only_clauses_that_some_run_does_not_pass(load_run):
    known = {name: clauses.load()[name] for name in (ONE, TWO)}
    text = markdown.page(Matrix(known, [load_run({ONE: "fail", TWO: "pass"}, target="a|<b>")]))
    assert f"| `{ONE}` | fail |" in text
    assert TWO not in text
    assert "a&#124;&lt;b> 1.0" in text


def test_matrix_page_has_rows_only_for_runs_of_the_newest_suite(tmp_path):
    for name, date, suite in [("old", "2026-01-01", "1 clauses, a"), ("new", "2026-01-02", "b")]:
        report = tmp_path / "results" / name / "torch-2.12.0_sim"
        samples.write_verdict_report(report, {ONE: "fail"}, target=name, date=date, suite=suite)
    text = render_matrix(tmp_path)
    assert "| [1](results/new/torch-2.12.0_sim/summary.md) | new | 2.12.0 | sim | b | 1 |" in text
    assert (
        "Runs of other versions of the suite: [old · torch 2.12.0 · sim]"
        "(results/old/torch-2.12.0_sim/summary.md) (1 clauses, a)." in text
    )
    assert f"| `{ONE}` | fail |\n" in text


def test_add_command_publishes_verdicts_and_builds_the_pages(tmp_path, capsys):
    file = samples.write_verdicts(
        tmp_path / "sent.jsonl", {ONE: "fail"}, target="theirs", torch="2.12"
    )
    folder = tmp_path / "reports"
    assert command.main(["add", str(file)], folder=folder) == 0
    matrix = (folder / "site" / "matrix.html").read_text(encoding="utf-8")
    assert "theirs 1.0 · torch 2.12 · sim" in matrix
    assert "| theirs 1.0 | 2.12 | sim |" in (folder / "MATRIX.md").read_text(encoding="utf-8")
    assert str(folder / "results" / "theirs" / "torch-2.12_sim") in capsys.readouterr().out


def test_add_command_prints_one_line_about_a_broken_file(tmp_path, capsys):
    (tmp_path / "sent.jsonl").write_text('{"run": {"format": 7}}\n')
    assert command.main(["add", str(tmp_path / "sent.jsonl")], folder=tmp_path / "reports") == 1
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not (tmp_path / "reports").exists()
