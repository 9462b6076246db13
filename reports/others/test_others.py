"""The list of other implementations, and what is made of a run; none is installed here."""

import json
import subprocess
import sys

import pytest

from reports.others import catalogue, environments, judging, publishing, table
from spec_tests.harness.conformance import register
from spec_tests.harness.environment import target_map
from spec_tests.harness.environment.target import PARTS

KNOWN = catalogue.load()


@pytest.mark.parametrize("name", KNOWN)
def test_every_implementation_has_a_register_of_its_own(name):
    assert register.path_of(KNOWN[name].target, None)


@pytest.mark.parametrize("name", KNOWN)
def test_every_map_names_parts(name):
    text = KNOWN[name].map
    pairs = dict(target_map.pairs(str(text))) if text else {}
    assert {key.partition(".")[0] for key in pairs} <= set(PARTS)
    assert text or (catalogue.HERE / "maps" / f"{name}.toml").exists() is False


def test_every_map_and_every_package_belongs_to_an_implementation():
    assert {path.stem for path in (catalogue.HERE / "maps").glob("*")} <= set(KNOWN)
    folders = {each.path for each in KNOWN.values()} - {""}
    assert all((catalogue.HERE / folder).is_dir() for folder in folders)


def test_every_implementation_says_what_differs():
    assert not [name for name, each in KNOWN.items() if not each.differs.strip()]


def line(verdict, clause="comm.scatter.slices", reason=None, test="t.py::test"):
    return {"clause": clause, "test": test, "verdict": verdict} | (
        {"reason": reason} if reason else {}
    )


def surprises_of(tmp_path, lines, status=0):
    saved = tmp_path / "verdicts.jsonl"
    saved.write_text("".join(f"{json.dumps(each)}\n" for each in [{"run": {}}, *lines]))
    return list(judging.surprises(saved, status))


def test_what_is_on_record_is_no_surprise(tmp_path):
    lacking = line("not-offered", "comm.gather.joined") | {"declared": "comm.gather"}
    lines = [line("known"), line("pass", "comm.reduce-add.sum"), lacking]
    assert surprises_of(tmp_path, lines) == []


@pytest.mark.parametrize(
    ("lines", "status", "expected"),
    [
        ([line("fail")], 1, ["fail comm.scatter.slices", "exit status 1"]),
        ([line("not-offered")], 6, ["not-offered comm.scatter.slices", "exit status 6"]),
        ([], 0, ["no verdict of any clause"]),
    ],
)
def test_what_is_not_on_record_is_one(tmp_path, lines, status, expected):
    assert surprises_of(tmp_path, lines, status) == expected


def test_a_report_has_one_verdict_a_clause():
    tests = [line("pass"), line("fail", reason="r" * 999, test="u"), line("fail", test="v")]
    (found,) = publishing.by_clause(tests)
    assert (found["verdict"], found["test"], len(found["reason"])) == ("fail", "u", 160)


def test_a_report_names_no_place_on_the_machine():
    reason = (
        "[gw0] linux -- Python 3.11.7 /home/me/bin/python\nin /home/me/spec_tests/a.py:3 and/or b"
    )
    (found,) = publishing.by_clause([line("fail", reason=reason)])
    assert found["reason"] == "in a.py:3 and/or b"


def test_what_is_cuda_is_not_asked_for():
    needs = ["filelock", "cuda-toolkit[cublas]==13", "nvidia-cudnn-cu13==9", "triton==3", "sympy"]
    assert [need for need in needs if not environments.CUDA.search(need)] == ["filelock", "sympy"]


def test_an_unknown_name_is_refused(tmp_path):
    command = [sys.executable, "-m", "reports.others", "nonesuch", "--home", str(tmp_path)]
    done = subprocess.run(command, cwd=catalogue.ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "there is no nonesuch; there are torch-2.11.0, " in done.stderr


def test_the_table_is_that_of_the_newest_reports():
    page = table.PAGE.read_text(encoding="utf-8")
    assert table.with_table(page) == page


def test_the_table_counts_the_clauses_of_a_report(tmp_path, monkeypatch):
    for day in ("2026-01-01", "2026-01-02"):
        report = tmp_path / f"{day}_mmcv_sim"
        report.mkdir()
        lines = [line("known"), line("pass", "comm.reduce-add.sum")]
        text = "".join(f"{json.dumps(each)}\n" for each in lines)
        (report / "verdicts.jsonl").write_text(text)
    monkeypatch.setattr(table, "REPORTS", tmp_path)
    (row,) = table.table().splitlines()[2:]
    assert row.startswith("| [mmcv.parallel of mmcv 1.7.2](../2026-01-02_mmcv_sim/")
    assert "| `mmcv` | 0 | 0 | 1 | 1 | 0 |" in row
