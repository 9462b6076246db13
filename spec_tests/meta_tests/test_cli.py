"""The command parallel-conformance, seen from an empty folder: what it prints, how it ends."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spec_tests.cli import doctor
from spec_tests.cli import progress as printing
from spec_tests.cli import report as reporting
from spec_tests.cli.main import main
from spec_tests.harness import clauses, verdicts

ROOT = Path(__file__).resolve().parents[2]
FEW = ("--accelerator", "sim", "--clause", "comm.scatter.slices")
#: torch.nn.parallel with two bugs: no chunk but the last is whole, and gather is not there.
WRONG = """
import torch.nn.parallel.comm as right
def scatter(*args, **kwargs):
    return tuple(right.scatter(*args, **kwargs))[::-1]
"""


@pytest.fixture
def command(tmp_path):
    """Call the command in an empty folder that holds the package ``wrong`` only."""
    package = tmp_path / "wrong"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "comm.py").write_text(WRONG)

    def call(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "spec_tests.cli.main", *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )

    return call


def test_a_failure_is_ten_lines(command):
    done = command("run", "wrong", *FEW)
    assert done.returncode == 1, done.stdout + done.stderr
    found = done.stdout[done.stdout.index("FAIL") :].split("\n\n")[0].splitlines()
    assert len(found) <= 10
    assert found[0].startswith("FAIL comm.scatter.slices  spec_tests/comm/test_scatter.py::")
    assert clauses.load()["comm.scatter.slices"].says in found[1]
    assert any("comm.scatter(tensor=" in line for line in found)
    assert any("expected" in line for line in found)
    again = "parallel-conformance run wrong --accelerator=sim --clause=comm.scatter.slices"
    assert found[-1] == f"  again: {again}"
    assert "Failing test case" not in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_verbose_is_what_pytest_prints(command):
    done = command("run", "wrong", *FEW, "-v")
    assert done.returncode == 1
    assert "Failing test case" in done.stdout
    assert "again:" not in done.stdout


def test_verdicts_are_saved_and_reported(command, tmp_path):
    done = command("run", "torch.nn.parallel", *FEW, "--verdicts", "all.jsonl")
    assert done.returncode == 0, done.stdout + done.stderr
    found = verdicts.by_clause(verdicts.read(tmp_path / "all.jsonl"))
    assert found == {"comm.scatter.slices": "pass"}
    table = "\n".join(verdicts.table(found))
    assert table in done.stdout
    assert "as pages: parallel-conformance report all.jsonl" in done.stdout
    reported = command("report", "all.jsonl").stdout
    assert reported.startswith(table)
    assert reported.splitlines()[-1].endswith("site/index.html")
    assert "comm.scatter.slices" in (tmp_path / "site" / "matrix.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["run", "no.such.package"], 4),
        (["run", "impl", "--accelerator", "nonesuch"], 4),
        (["run", "impl", "--accelerator", "sim", "--clause", "comm.nonesuch"], 4),
    ],
)
def test_exit_statuses_are_those_of_the_page(command, arguments, status):
    done = command(*arguments)
    assert done.returncode == status, done.stdout + done.stderr


@pytest.mark.parametrize("arguments", [[], ["nonesuch"], ["run"], ["doctor", "--"]])
def test_wrong_arguments_end_with_usage(arguments):
    if arguments == ["doctor", "--"]:
        arguments = [*arguments, "-n", "2"]
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2


def test_clauses_are_printed_by_name(capsys):
    assert main(["clauses", "comm.scatter.slices"]) == 0
    printed = capsys.readouterr().out
    assert "comm.scatter.slices" in printed
    assert printed.endswith("\n1 clause\n")
    assert main(["clauses", "comm.scatt"]) == 1


def test_a_report_needs_a_run(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["report"]) == 4
    assert "there is no run to show" in capsys.readouterr().err
    assert main(["report", "none"]) == 4
    assert "none cannot be read" in capsys.readouterr().err


def test_a_foreign_file_is_refused_in_one_sentence(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("page.html").write_text("<html>")
    assert main(["report", "page.html"]) == 4
    assert capsys.readouterr().err.splitlines() == [
        "page.html, line 1 is no JSON: Expecting value: line 1 column 1 (char 0)"
    ]
    assert not Path("site").exists()


def test_a_report_names_what_is_missing_and_its_remedy(monkeypatch, capsys):
    monkeypatch.setattr(reporting, "MODULES", ("nonesuch",))
    assert main(["report"]) == 1
    remedy = "remedy: pip install 'torch-parallel-spec[report]'"
    assert capsys.readouterr().err == f"missing: nonesuch\n{remedy}\n"


def test_the_doctor_finds_nothing_missing_here(capsys):
    assert doctor.main() == 0
    assert "MISSING" not in capsys.readouterr().out


def test_the_doctor_names_what_is_missing_and_its_remedy(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "MODULES", ("nonesuch", *doctor.MODULES))
    assert doctor.main() == 1
    assert main(["run", "impl"]) == 1
    done = capsys.readouterr()
    assert "MISSING modules     nonesuch; remedy: pip install" in done.out
    assert "missing: nonesuch\nremedy: pip install" in done.err


def test_the_doctor_misses_a_compiler_where_the_simulator_is_not_built(
    monkeypatch, tmp_path, capsys
):
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    assert doctor.main() == 0
    assert "not built yet" in capsys.readouterr().out
    monkeypatch.setenv("CXX", "nonesuch-c++")
    assert [line.split()[:2] for line in _doctor(capsys) if "MISSING" in line] == [
        ["MISSING", "nonesuch-c++"]
    ]


def _doctor(capsys):
    doctor.main()
    return capsys.readouterr().out.splitlines()


class Terminal:
    """Keeps what would be printed."""

    def __init__(self):
        self.lines, self.live = [], []

    def write_line(self, line):
        self.lines.append(line)

    def rewrite(self, line, *, erase):
        self.live.append(line)


def _report(outcome):
    report = pytest.TestReport("t", ("t", 0, "t"), {}, outcome, None, "call")
    report.user_properties = [("clause", "comm.scatter.slices")]
    return report


@pytest.mark.parametrize("live", [True, False])
def test_progress_is_live_on_a_terminal_and_plain_lines_elsewhere(monkeypatch, live):
    monkeypatch.setattr(printing.sys.stdout, "isatty", lambda: live, raising=False)
    plugin, terminal = printing.Progress("again"), Terminal()
    plugin._terminal = terminal
    for outcome in ["passed"] * 200 + ["failed"]:
        plugin.pytest_runtest_logreport(_report(outcome))
    if live:
        assert len(terminal.live) == 201
        assert "201 tests; clauses: 1 fail" in terminal.live[-1]
        assert not terminal.lines
    else:
        assert not terminal.live
        assert [line.split(";")[0] for line in terminal.lines] == ["100 tests", "200 tests"]
        assert "0 fail" in terminal.lines[0]
        assert "1 pass" in terminal.lines[0]
