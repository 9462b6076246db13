"""The command parallel-conformance, seen from an empty folder: what it prints, how it ends."""

import os
import re
import sys
import tomllib
from pathlib import Path

import pytest

from spec_tests.cli import doctor
from spec_tests.cli import progress as printing
from spec_tests.cli import report as reporting
from spec_tests.cli.draft import draft
from spec_tests.cli.main import main
from spec_tests.harness.conformance import clauses, register, verdicts

ROOT = Path(__file__).resolve().parents[2]
FEW = ("--accelerator", "sim", "--clause", "comm.scatter.slices")
#: How releases of Hypothesis announce what they drew.
DRAWN = re.compile("Falsifying example|Failing test case")
#: torch.nn.parallel with two bugs: no chunk but the last is whole, and gather is not there.
WRONG = """
import torch.nn.parallel.comm as right
def scatter(*args, **kwargs):
    return tuple(right.scatter(*args, **kwargs))[::-1]
"""


@pytest.fixture
def command(tmp_path, fork_server):
    """Call the command in an empty folder that holds the package ``wrong`` only."""
    package = tmp_path / "wrong"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "comm.py").write_text(WRONG)

    def call(*arguments):
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        return fork_server.run("spec_tests.cli.main", *arguments, cwd=tmp_path, env=env)

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
    assert found[-1] == f"  repeat: {again}"
    assert not DRAWN.search(done.stdout)
    assert "Traceback" not in done.stdout + done.stderr


def test_verbose_is_what_pytest_prints(command):
    done = command("run", "wrong", *FEW, "-v")
    assert done.returncode == 1
    assert DRAWN.search(done.stdout)
    assert "repeat:" not in done.stdout


def test_verdicts_are_saved_and_reported(command, tmp_path):
    done = command("run", "torch.nn.parallel", *FEW, "--verdicts", "all.jsonl")
    assert done.returncode == 0, done.stdout + done.stderr
    found = verdicts.by_clause(verdicts.read(tmp_path / "all.jsonl"))
    assert found == {"comm.scatter.slices": "pass"}
    table = "\n".join(verdicts.table(found))
    assert table in done.stdout
    assert "to make web pages: parallel-conformance report all.jsonl" in done.stdout
    reported = command("report", "all.jsonl").stdout
    assert reported.startswith(table)
    assert reported.splitlines()[-1].endswith("site/index.html")
    assert "comm.scatter.slices" in (tmp_path / "site" / "matrix.html").read_text()


def test_a_draft_of_what_failed_makes_it_known(command, tmp_path):
    assert command("run", "wrong", *FEW, "--verdicts", "all.jsonl").returncode == 1
    resumed = command("run", "wrong", *FEW, "--verdicts", "all.jsonl", "--", "--resume")
    assert resumed.returncode == 1, resumed.stdout + resumed.stderr
    (tmp_path / "known.toml").write_text(command("draft", "all.jsonl").stdout)
    (record,) = register.load(tmp_path / "known.toml")
    assert record.clause == "comm.scatter.slices"
    assert record.specified == clauses.load()["comm.scatter.slices"].says
    done = command("run", "wrong", *FEW, "--divergences", "known.toml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "known  comm.scatter.slices" in done.stdout


def test_a_draft_names_the_parameters_where_others_pass():
    names = {"a.py::one[1]": "fail", "a.py::one[2]": "pass", "a.py::two[1]": "fail"}
    tests = [
        {
            "clause": "comm.scatter.slices",
            "test": f"spec_tests/{test}",
            "verdict": verdict,
            "reason": 'E: "\x7f"',
        }
        for test, verdict in names.items()
    ]
    (record,) = tomllib.loads(draft(tests))["divergence"]
    assert record["tests"] == ["a.py::one[1]", "a.py::two"]
    assert record["failures"] == ['E: "\x7f"']


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


def test_the_doctor_misses_a_compiler_that_knows_no_newer_language(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    monkeypatch.setenv("CXX", "false")
    assert any("MISSING false" in line and "C++20" in line for line in _doctor(capsys))


def test_the_doctor_misses_the_headers_of_python(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    monkeypatch.setattr(doctor.sysconfig, "get_path", lambda name: str(tmp_path))
    assert any("MISSING Python.h" in line and "python3-dev" in line for line in _doctor(capsys))


def test_the_doctor_misses_a_place_for_the_simulator(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", "/dev/null/below")
    found = [line for line in _doctor(capsys) if "MISSING" in line]
    assert [line.split()[1] for line in found] == ["cache"]
    assert "TORCH_EXTENSIONS_DIR" in found[0]


def test_the_doctor_asks_an_old_torch_for_nothing_more(monkeypatch, capsys):
    monkeypatch.setattr("torch.__version__", "2.4.1+cpu")
    monkeypatch.delattr("torch.accelerator")
    assert any(
        "MISSING torch" in line and "pip install 'torch>=2.11'" in line for line in _doctor(capsys)
    )


def test_the_doctor_tells_why_torch_cannot_be_imported(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(doctor, "MODULES", ())
    assert any(
        "MISSING torch" in line and "import of torch halted" in line for line in _doctor(capsys)
    )


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("TORCH_EXTENSIONS_DIR", "/dev/null/below", "name a folder that can be written to"),
        ("CXX", "nonesuch-c++", "install g++ 11 or newer"),
    ],
)
def test_a_run_without_a_simulator_tells_the_remedy(
    command, monkeypatch, tmp_path, name, value, text
):
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv(name, value)
    done = command("run", "torch.nn.parallel", *FEW)
    assert done.returncode == 4
    assert text in done.stdout + done.stderr
    assert "INTERNALERROR" not in done.stdout + done.stderr


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
