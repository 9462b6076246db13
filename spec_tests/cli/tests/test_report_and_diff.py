"""The commands ``report`` and ``diff``: files, output and exit status."""

import json
import re
import sys
from pathlib import Path

import pytest

from spec_tests import reporting
from spec_tests.cli import diff
from spec_tests.cli.main import main
from spec_tests.failure import Fact, Failure
from spec_tests.machine import verdict_file
from spec_tests.machine.verdicts import Evidence
from spec_tests.reporting.tests import samples


@pytest.fixture
def saved_runs(tmp_path, monkeypatch):
    """Change to a folder with two runs, and return the names of their files."""
    monkeypatch.chdir(tmp_path)
    verdicts_of = {
        "a.worse": ("pass", "fail"),
        "a.hidden": ("pass", "known"),
        "a.better": ("fail", "pass"),
        "a.same": ("pass", "pass"),
        "a.new": (None, "fail"),
        "a.first": (None, "pass"),
        "a.old": ("pass", None),
    }
    for place, name in enumerate(("old.jsonl", "new.jsonl")):
        found = {clause: each[place] for clause, each in verdicts_of.items() if each[place]}
        samples.write_verdicts(Path(name), found, version="", examples=(25, 5)[place])
    with Path("new.jsonl").open("a") as file:
        file.write(json.dumps(verdict_file.INTERRUPTED))
    return "old.jsonl", "new.jsonl"


def test_diff_lists_clauses_that_changed_and_fails_for_a_regression(saved_runs, capsys):
    old, _ = saved_runs
    assert main(["diff", *saved_runs, "--to", "page.md"]) == 1
    first, second, examples, *lines, appeared, gone, total = capsys.readouterr().out.splitlines()
    assert first == "old: theirs · torch 2.12.0 · sim · old"
    assert second == "new: theirs · torch 2.12.0 · sim · new (the run was interrupted)"
    assert examples == "other failures may be found: 25 examples a test, now 5"
    assert [line.split() for line in lines] == [
        ["regression", "pass", "->", "known", "a.hidden"],
        ["regression", "pass", "->", "fail", "a.worse"],
        ["improvement", "fail", "->", "pass", "a.better"],
        ["appeared", "not-run", "->", "fail", "a.new"],
    ]
    assert appeared.startswith("appeared        1 clause with the verdict pass that the old run")
    assert gone.startswith("disappeared     1 clause that the new run does not decide")
    assert total == "2 regressions, 2 other changes, 6 clauses in the new run"
    page = Path("page.md").read_text()
    assert "| regression | a.worse | pass | fail |" in page
    assert "| disappeared | a.old | pass | not-run |" in page
    assert main(["diff", old, old]) == 0
    assert "examples" not in capsys.readouterr().out
    assert main(["diff", old, "none"]) == 4


def test_diff_tells_recorded_and_repaired_failures_from_changes_of_the_target():
    differs = Failure("differs", (Fact("output", "strides"),), "other strides")
    stale = Failure("stale-record", (Fact("register", "stale"),), "remove it")
    old = {name: Evidence("fail", failure=differs) for name in ("a.known", "a.lacking")}
    old |= {name: Evidence("known", failure=differs) for name in ("a.better", "a.fixed")}
    new = {"a.known": Evidence("known", failure=differs), "a.better": Evidence("pass")}
    new["a.fixed"] = Evidence("fail", failure=stale)
    new["a.lacking"] = Evidence("not-offered", declared="comm.scatter")
    old["a.stale"], new["a.stale"] = (
        Evidence(each, failure=stale) for each in ("fail", "not-run")
    )
    assert diff.changes(old, new) == [
        ("repaired", "a.fixed", "known", "passes, still recorded"),
        ("improvement", "a.better", "known", "pass"),
        ("recorded", "a.known", "fail", "known"),
        ("recorded", "a.lacking", "fail", "not-offered"),
    ]


@pytest.mark.parametrize(
    ("verdict", "kind"),
    [
        ("fail", "regression"),
        ("known", "regression"),
        ("not-run", "regression"),
        ("pass", "improvement"),
    ],
)
def test_a_clause_with_a_record_out_of_date_passed_in_the_old_run(verdict, kind):
    stale = Failure("stale-record", (Fact("register", "stale"),), "remove it")
    differs = Failure("differs", (Fact("output", "strides"),), "other strides")
    after = Evidence(verdict, failure=None if verdict == "pass" else differs)
    assert diff.changes({"a.fixed": Evidence("fail", failure=stale)}, {"a.fixed": after}) == [
        (kind, "a.fixed", diff.LEFT, verdict)
    ]


@pytest.mark.parametrize(("count", "lines"), [(5, 5), (6, 1)])
def test_diff_counts_many_recorded_failures(tmp_path, monkeypatch, capsys, count, lines):
    monkeypatch.chdir(tmp_path)
    for name, verdict in (("old", "fail"), ("new", "known")):
        found = {f"a.n{number}": verdict for number in range(count)}
        samples.write_verdicts(Path(name), found, version="")
    assert main(["diff", "old", "new"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("\nrecorded ") == lines
    counted = (
        f"recorded        {count} clauses whose failures the register of the new run has (--to"
    )
    assert (counted in printed) == (lines == 1)
    assert f"0 regressions, {count} other changes" in printed


def test_report_writes_a_summary_and_a_badge(saved_runs):
    _, new = saved_runs
    assert main(["report", new, "--summary", "summary.md", "--badge", "badge.json"]) == 0
    summary = Path("summary.md").read_text()
    assert summary.startswith("# theirs · torch 2.12.0 · sim · new\n\nsuite 1.0 is not decided: ")
    assert "\nthe run was interrupted\n" in summary
    assert "| all | 2 | 0 | 1 | 3 | 0 |" in summary
    title = "torch.nn.parallel passes 2 of 2 failed clauses:"
    assert summary.endswith(
        f"|\n\n{title}\n\n* a.new differs: a.new\n* a.worse differs: a.worse\n"
    )
    badge = json.loads(Path("badge.json").read_text())
    assert (badge["schemaVersion"], badge["color"]) == (1, "lightgrey")
    assert re.fullmatch(r"is not decided: \d+ of \d+ decided", badge["message"])


def test_a_report_without_a_run_exits_with_status_4(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["report"]) == 4
    assert "there is no run to show" in capsys.readouterr().err
    assert main(["report", "none"]) == 4
    assert "none cannot be read" in capsys.readouterr().err


def test_a_report_names_missing_modules_and_the_remedy(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    monkeypatch.delitem(sys.modules, "spec_tests.reporting.pages", raising=False)
    monkeypatch.delattr(reporting, "pages", raising=False)
    assert main(["report"]) == 1
    assert capsys.readouterr().err == "missing: jinja2\nremedy: pip install jinja2\n"
