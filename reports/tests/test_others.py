"""The list of other implementations and the handling of their verdicts; none is installed."""

import json
import subprocess
import sys

import pytest

from reports.others import catalogue, environments, publishing, table, validation
from spec_tests.harness.conformance import register
from spec_tests.harness.environment import target_map
from spec_tests.harness.environment.target import PARTS

KNOWN = catalogue.load()


@pytest.mark.parametrize("name", KNOWN)
def test_every_implementation_has_a_register(name):
    assert register.path_of(KNOWN[name].target, None)


@pytest.mark.parametrize("name", [name for name, each in KNOWN.items() if each.map])
def test_every_map_names_submodules_of_the_reference(name):
    pairs = dict(target_map.pairs(str(KNOWN[name].map)))
    assert {key.partition(".")[0] for key in pairs} <= set(PARTS)


def test_every_map_and_every_package_belongs_to_an_implementation():
    assert {path.stem for path in (catalogue.HERE / "maps").glob("*")} <= set(KNOWN)
    folders = {each.path for each in KNOWN.values()} - {""}
    assert all((catalogue.HERE / folder).is_dir() for folder in folders)


def line(verdict, clause="comm.scatter.slices", reason=None, test="t.py::test"):
    return {"clause": clause, "test": test, "verdict": verdict} | (
        {"reason": reason} if reason else {}
    )


def unexpected_of(tmp_path, lines, status=0):
    saved = tmp_path / "verdicts.jsonl"
    saved.write_text("".join(f"{json.dumps(each)}\n" for each in [{"run": {}}, *lines]))
    return list(validation.find_unexpected(saved, status))


def test_recorded_verdicts_are_expected(tmp_path):
    missing = line("not-offered", "comm.gather.joined") | {"declared": "comm.gather"}
    lines = [line("known"), line("pass", "comm.reduce-add.sum"), missing]
    assert unexpected_of(tmp_path, lines) == []


@pytest.mark.parametrize(
    ("lines", "status", "expected"),
    [
        ([line("fail")], 1, ["fail comm.scatter.slices", "exit status 1"]),
        ([line("not-offered")], 6, ["not-offered comm.scatter.slices", "exit status 6"]),
        ([], 0, ["no verdict of any clause"]),
    ],
)
def test_other_verdicts_are_unexpected(tmp_path, lines, status, expected):
    assert unexpected_of(tmp_path, lines, status) == expected


def test_report_has_one_verdict_for_each_clause():
    tests = [line("pass"), line("fail", reason="r" * 999, test="u"), line("fail", test="v")]
    (found,) = publishing.reduce_to_clauses(tests)
    assert (found["verdict"], found["test"], len(found["reason"])) == ("fail", "u", 160)


def test_report_holds_no_path_of_the_machine():
    reason = (
        "[gw0] linux -- Python 3.11.7 /home/me/bin/python\nin /home/me/spec_tests/a.py:3 and/or b"
    )
    (found,) = publishing.reduce_to_clauses([line("fail", reason=reason)])
    assert found["reason"] == "in a.py:3 and/or b"


def test_libraries_of_cuda_are_not_installed():
    needs = ["filelock", "cuda-toolkit[cublas]==13", "nvidia-cudnn-cu13==9", "triton==3", "sympy"]
    assert [need for need in needs if not environments.CUDA.search(need)] == ["filelock", "sympy"]


def test_unknown_name_is_refused(tmp_path):
    command = [sys.executable, "-m", "reports.others", "nonesuch", "--home", str(tmp_path)]
    done = subprocess.run(command, cwd=catalogue.ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "there is no nonesuch; there are torch-2.11.0, " in done.stderr


def test_committed_table_matches_the_reports():
    page = table.PAGE.read_text(encoding="utf-8")
    assert table.update_table(page) == page, "run python -m reports.others.table --write"


def test_table_counts_the_clauses_of_a_report(tmp_path):
    report = tmp_path / "mmcv" / "torch-2.13.0_sim"
    report.mkdir(parents=True)
    lines = [line("known"), line("pass", "comm.reduce-add.sum")]
    text = "".join(f"{json.dumps(each)}\n" for each in lines)
    (report / "verdicts.jsonl").write_text(text)
    (row,) = table.render_table(tmp_path).splitlines()[2:]
    assert row.startswith("| [mmcv.parallel of mmcv 1.7.2](../results/mmcv/torch-2.13.0_sim/")
    assert "| `mmcv` | 0 | 0 | 1 | 1 | 0 |" in row


def test_every_release_of_the_reference_is_reported_as_one_target():
    assert KNOWN["torch-2.15.0"].report_target == "torch.nn.parallel"
    assert KNOWN["mmcv"].report_target == "mmcv"
