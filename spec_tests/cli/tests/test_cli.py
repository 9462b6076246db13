"""The command parallel-conformance: output, files and exit status in an empty folder."""

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from spec_tests.cli import doctor, report
from spec_tests.cli.draft import draft
from spec_tests.cli.main import main
from spec_tests.harness.conformance import (
    clauses,
    known_failures,
    register,
    verdict_table,
    verdicts,
)
from spec_tests.harness.environment.topology import MODULES
from spec_tests.harness.tests.fixtures import ROOT

pytestmark = pytest.mark.slow

ONE_CLAUSE = ("--accelerator", "sim", "--clause", "comm.scatter.slices")
#: pytest-benchmark writes a folder of its own.
PYTEST = ("pytest", "-p", "spec_tests", "-p", "no:benchmark")
#: The headings of a failing example in the output of older and newer releases of Hypothesis.
EXAMPLE = re.compile("Falsifying example|Failing (test case|explicit example)")
#: The module ``comm`` of a package with two bugs: scatter reverses the chunks, and all other
#: functions are missing.
WRONG_COMM = """
from torch.nn.parallel import comm
def scatter(*args, **kwargs):
    return tuple(comm.scatter(*args, **kwargs))[::-1]
"""


@pytest.fixture
def command(write_package, run_command):
    """Return a function that runs the command in a folder with only the package ``wrong``."""
    write_package("wrong", comm=WRONG_COMM)
    return run_command


def test_a_failure_is_printed_in_at_most_eleven_lines(command):
    done = command("run", "wrong", *ONE_CLAUSE)
    assert done.returncode == 1, done.stdout + done.stderr
    lines = done.stdout[done.stdout.index("FAIL") :].split("\n\n")[0].splitlines()
    assert len(lines) <= 11
    assert lines[0].startswith("FAIL comm.scatter.slices  spec_tests/comm/test_scatter.py::")
    assert clauses.load()["comm.scatter.slices"].says in lines[1]
    assert any("comm.scatter(tensor=" in line for line in lines)
    assert any("expected" in line for line in lines)
    repeat = "parallel-conformance run wrong --accelerator=sim --clause=comm.scatter.slices"
    test = lines[0].partition("[")[0].rpartition("::")[2]
    assert lines[-2] == "  program: python repro/comm_scatter_slices.py"
    assert lines[-1] == f"  repeat: {repeat} -- -k {test}"
    assert not EXAMPLE.search(done.stdout)
    assert "Traceback" not in done.stdout + done.stderr


def test_the_command_after_repeat_runs_the_test_again(command):
    first = command("run", "wrong", *ONE_CLAUSE, "--verdicts=a.jsonl", "--", "-x", "-qx")
    resuming = ("--resume", "-x", "-n", "0", "-k", "test_", "--maxfail=3", "--late-copies", "0")
    done = command("run", "wrong", *ONE_CLAUSE, "--verdicts=b.jsonl", "--", *resuming)
    for found, more in (first, ""), (done, "--late-copies=0"):
        (line, *_) = [each for each in found.stdout.splitlines() if "repeat: " in each]
        words = shlex.split(line.partition("repeat: parallel-conformance ")[2])
        assert words[:4] == ["run", "wrong", "--accelerator=sim", "--clause=comm.scatter.slices"]
        assert words[4:-2] == ["--", *more.split()]
        repeated = command(*words)
        assert repeated.returncode == 1, repeated.stdout + repeated.stderr
        assert line in repeated.stdout


@pytest.mark.parametrize(
    ("command", "written"),
    [
        (["spec_tests.cli", "run", "wrong"], {"repro"}),
        ([*PYTEST, "--pyargs", "spec_tests", "--target=wrong"], set()),
    ],
    ids=["command", "pytest"],
)
def test_a_run_writes_only_programs_into_the_current_folder(tmp_path, command, written):
    # Not in the fork server, which places the examples of Hypothesis in this folder.
    (tmp_path / "wrong.py").write_text(WRONG_COMM)
    command = [sys.executable, "-m", *command, *ONE_CLAUSE, "--target-map", "comm=wrong"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("HYPOTHESIS_STORAGE_DIRECTORY", None)
    done = subprocess.run(command, cwd=tmp_path, env=environment, check=False)
    assert done.returncode == 1
    files = {path.name for path in tmp_path.iterdir()} - {".pytest_cache"}
    assert files == {"wrong.py", *written}


def test_verbose_prints_the_output_of_pytest(command):
    done = command("run", "wrong", *ONE_CLAUSE, "-v")
    assert done.returncode == 1
    assert EXAMPLE.search(done.stdout)
    assert "repeat:" not in done.stdout


def test_verdicts_are_saved_and_reported(command, tmp_path):
    done = command("run", "torch.nn.parallel", *ONE_CLAUSE, "--verdicts", "all.jsonl")
    assert done.returncode == 0, done.stdout + done.stderr
    saved = verdicts.by_clause(verdicts.read(tmp_path / "all.jsonl"))
    assert saved == {"comm.scatter.slices": "pass"}
    table = "\n".join(verdict_table.table(saved))
    assert table in done.stdout
    assert "to write a web page: parallel-conformance report all.jsonl" in done.stdout
    reported = command("report", "all.jsonl").stdout
    assert reported.startswith(table)
    assert reported.splitlines()[-1] == "wrote report.html"
    assert "comm.scatter.slices" in (tmp_path / "report.html").read_text()


def test_failures_listed_in_a_drafted_register_become_known(command, tmp_path):
    assert command("run", "wrong", *ONE_CLAUSE, "--verdicts", "all.jsonl").returncode == 1
    resumed = command("run", "wrong", *ONE_CLAUSE, "--verdicts", "all.jsonl", "--resume")
    assert resumed.returncode == 1, resumed.stdout + resumed.stderr
    drafted = command("draft", "all.jsonl")
    assert not drafted.stderr
    (tmp_path / "known.toml").write_text(drafted.stdout)
    with (tmp_path / "all.jsonl").open("a") as file:
        file.write(json.dumps(verdicts.INTERRUPTED))
    warned = command("draft", "all.jsonl")
    assert "the run was interrupted" in warned.stderr
    assert tomllib.loads(warned.stdout) == tomllib.loads(drafted.stdout)
    (record,) = register.load(tmp_path / "known.toml")
    assert record.clauses == ("comm.scatter.slices",)
    done = command("run", "wrong", *ONE_CLAUSE, "--divergences", "known.toml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "known  comm.scatter.slices" in done.stdout


def test_run_imports_a_back_end_that_torch_loads_by_itself_and_repeats_the_option(
    command, tmp_path
):
    (tmp_path / "backend.py").write_text("import torch\ndef load(): open('imported', 'w').close()")
    distribution = tmp_path / "backend-1.dist-info"
    distribution.mkdir()
    (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: backend\nVersion: 1\n")
    (distribution / "entry_points.txt").write_text("[torch.backends]\nbackend = backend:load\n")
    done = command("run", "wrong", *ONE_CLAUSE, "-p", "backend")
    assert done.returncode == 1, done.stdout + done.stderr
    assert (tmp_path / "imported").exists()
    assert "--clause=comm.scatter.slices -- -pbackend -k " in done.stdout


def test_a_worker_that_cannot_start_ends_the_run_with_one_line(command, tmp_path, monkeypatch):
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)  # This test may run in a worker.
    text = "import os\nif 'PYTEST_XDIST_WORKER' in os.environ: raise RuntimeError('no device')"
    (tmp_path / "backend.py").write_text(text)
    done = command("run", "wrong", *ONE_CLAUSE, "-p", "backend")
    assert done.returncode == 4, done.stdout + done.stderr
    (line,) = [each for each in done.stdout.splitlines() if "cannot start" in each]
    assert line == "ERROR: a worker process cannot start: RuntimeError: no device"


def test_a_run_without_a_test_says_so(command):
    done = command("run", "wrong", *ONE_CLAUSE, "--", "-k", "no_such_test", "-n0")
    assert done.returncode == 5, done.stdout + done.stderr
    assert "no test was selected" in done.stdout.splitlines()[-1]


def test_a_draft_names_the_parameters_of_a_test_if_only_some_of_them_fail_alike():
    found = {"one[1]": "E: x", "one[2]": None, "two[1]": 'E: "\x7f"', "three[1]": "E: x"}
    found |= {"three[2]": "E: y"}
    tests = [
        {"clause": "comm.scatter.slices", "test": f"spec_tests/a.py::{test}"}
        | ({"verdict": "fail", "differs": differs} if differs else {"verdict": "pass"})
        for test, differs in found.items()
    ]
    records = tomllib.loads(draft(tests))["divergence"]
    assert [(*each["differences"], *each["tests"]) for each in records] == [
        ("E: x", "a.py::one[1]", "a.py::three[1]"),
        ('E: "\x7f"', "a.py::two"),
        ("E: y", "a.py::three[2]"),
    ]
    assert all(each["reason"] for each in records)


@pytest.fixture
def saved_runs(tmp_path, monkeypatch):
    """Change to a folder with two runs, and return the names of their files."""
    monkeypatch.chdir(tmp_path)
    header = dict.fromkeys(("target", "torch", "accelerator", "command", "date"), "x")
    verdicts_of = {
        "a.worse": ("pass", "fail"),
        "a.hidden": ("pass", "known"),
        "a.better": ("fail", "pass"),
        "a.same": ("pass", "pass"),
        "a.new": (None, "fail"),
        "a.old": ("pass", None),
    }
    for place, name in enumerate(("old.jsonl", "new.jsonl")):
        lines = [{"run": {"format": 1, **header}}]
        for clause, found in verdicts_of.items():
            if found[place]:
                lines.append({"test": "t", "clause": clause, "verdict": found[place]})
        lines += [verdicts.INTERRUPTED] * place
        Path(name).write_text("\n".join(map(json.dumps, lines)))
    return "old.jsonl", "new.jsonl"


def test_diff_lists_clauses_that_changed_and_fails_for_a_regression(saved_runs, capsys):
    old, _ = saved_runs
    assert main(["diff", *saved_runs, "--to", "page.md"]) == 1
    first, second, *lines, gone, total = capsys.readouterr().out.splitlines()
    assert first == "old: x · torch x · x · old"
    assert second == "new: x · torch x · x · new (interrupted)"
    assert [line.split() for line in lines] == [
        ["regression", "pass", "->", "known", "a.hidden"],
        ["regression", "pass", "->", "fail", "a.worse"],
        ["improvement", "fail", "->", "pass", "a.better"],
        ["appeared", "not-run", "->", "fail", "a.new"],
    ]
    assert gone.startswith("disappeared  1 clauses that the new run does not decide")
    assert total == "2 regressions, 3 other changes, 5 clauses"
    page = Path("page.md").read_text()
    assert "| regression | a.worse | pass | fail |" in page
    assert "| disappeared | a.old | pass | not-run |" in page
    assert main(["diff", old, old]) == 0
    assert main(["diff", old, "none"]) == 4


def test_report_writes_a_summary_and_a_badge(saved_runs):
    _, new = saved_runs
    assert main(["report", new, "--summary", "summary.md", "--badge", "badge.json"]) == 0
    summary = Path("summary.md").read_text()
    assert summary.startswith("# x · torch x · x · new\n\nsuite 1.0 is not decided: ")
    assert "| all | 2 | 0 | 1 | 2 | 0 |" in summary
    badge = json.loads(Path("badge.json").read_text())
    assert (badge["schemaVersion"], badge["color"]) == (1, "lightgrey")
    assert badge["message"].endswith("is not decided")


def test_a_draft_leaves_out_lives_that_leave_out_recorded_violations():
    known, life = "divergences.DP-1.cpu-devices", "data_parallel.life.backward"
    tests = [
        {"clause": name, "test": f"spec_tests/a.py::{name}", "verdict": "fail", "differs": "E: x"}
        for name in (known, life)
    ]
    (record,) = tomllib.loads(draft(tests))["divergence"]
    assert record["clause"] == known
    assert "--clause data_parallel.life --divergences FILE" in draft(tests)
    (record,) = tomllib.loads(draft(tests[1:]))["divergence"]
    assert record["clause"] == life


OLD_REGISTER = """\
lacks = ["replicate"]

[[divergence]]
id = "X-4"
kind = "target-bug"
clause = "comm.scatter.slices"
tests = ["a.py::one", "a.py::two"]
differences = ["E: x"]
observed = "x"

[[divergence]]
id = "X-5"
kind = "target-bug"
clause = "comm.scatter.slices"
tests = ["a.py::three"]
differences = ["E: x"]
observed = "x"
"""


@pytest.fixture
def old_register(tmp_path, monkeypatch):
    """Write a register of a suite with three tests, and the suite; return the register."""
    monkeypatch.setattr(clauses, "SOURCE", tmp_path)
    (tmp_path / "a.py").write_text("def one(): ...\ndef two(): ...\ndef three(): ...\n")
    (tmp_path / "old.toml").write_text(OLD_REGISTER)
    return tmp_path / "old.toml"


def test_a_draft_leaves_out_tests_that_the_suite_no_longer_has(old_register, capsys):
    (old_register.parent / "a.py").write_text("def two(): ...\n")
    assert main(["draft", "--divergences", str(old_register)]) == 0
    printed = capsys.readouterr()
    (kept,) = tomllib.loads(printed.out)["divergence"]
    assert (kept["id"], kept["tests"]) == ("X-4", ["a.py::two"])
    text = "{}: left out, no such test: a.py::{}\n"
    assert printed.err == text.format("X-4", "one") + text.format("X-5", "three")


def test_a_draft_keeps_the_records_of_a_register_without_the_tests_that_pass(old_register):
    found = {"one[1]": "known", "one[2]": "passes", "two": "known", "three": "passes"}
    found |= {"four": "fail"}
    tests = [
        {"clause": "comm.scatter.slices", "test": f"spec_tests/a.py::{name}"}
        | {"verdict": "known" if verdict == "known" else "fail", "differs": "E: y"}
        | {"difference": known_failures.PASSES if verdict == "passes" else verdict}
        for name, verdict in found.items()
    ]
    lacking = {"clause": "comm.gather.joined", "test": "a.py::five", "verdict": "not-offered"}
    lacking["reason"] = "the target does not define comm.gather"
    drafted = tomllib.loads(draft([*tests, lacking], register_file=old_register))
    assert drafted["lacks"] == ["comm.gather", "replicate"]
    kept, added = drafted["divergence"]
    assert (kept["id"], kept["tests"]) == ("X-4", ["a.py::one[1]", "a.py::two"])
    assert (added["id"], added["tests"]) == ("X-6", ["a.py::four"])
    assert len(tomllib.loads(draft(tests))["divergence"]) == 1


def test_a_wrong_value_of_an_option_exits_with_status_4(command):
    done = command("run", "impl", "--accelerator=no_such_name")
    assert done.returncode == 4, done.stdout + done.stderr


@pytest.mark.parametrize(
    "arguments", ["", "no_such_name", "run", "run impl -k x", "doctor -- -n 2"]
)
def test_wrong_arguments_exit_with_status_2(arguments):
    with pytest.raises(SystemExit) as caught:
        main(arguments.split())
    assert caught.value.code == 2


def test_clauses_command_prints_the_clauses_with_the_given_name(capsys):
    assert main(["clauses", "comm.scatter.slices"]) == 0
    printed = capsys.readouterr().out
    assert "comm.scatter.slices" in printed
    assert printed.endswith("\n1 clause\n")
    assert main(["clauses", "comm.sc", "divergences.RE-1"]) == 0
    printed = capsys.readouterr().out
    assert "comm.scatter.slices" in printed
    assert "divergences.RE-1.compiled-once-a-device" in printed
    assert "divergences.RE-10." not in printed
    assert main(["clauses", "comm.scater"]) == 1
    hint = "comm.scater: no clause has this name; did you mean comm.scatter?"
    assert capsys.readouterr().err == f"{hint}\n"


def test_run_refuses_an_unknown_clause_before_it_imports_pytorch(capsys):
    assert main(["run", "impl", "--clause=comm.scater"]) == 4
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("--clause comm.scater: no clause has this name")


def test_a_report_without_a_run_exits_with_status_4(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["report"]) == 4
    assert "there is no run to show" in capsys.readouterr().err
    assert main(["report", "none"]) == 4
    assert "none cannot be read" in capsys.readouterr().err


def test_a_report_names_missing_modules_and_the_remedy(monkeypatch, capsys):
    monkeypatch.setattr(report, "MODULES", ("no_such_name",))
    assert main(["report"]) == 1
    remedy = "remedy: pip install 'torch-parallel-spec[report]'"
    assert capsys.readouterr().err == f"missing: no_such_name\n{remedy}\n"


def test_doctor_finds_nothing_missing_in_the_test_environment(capsys):
    assert doctor.main() == 0
    assert "MISSING" not in capsys.readouterr().out


def test_doctor_names_missing_modules_and_the_remedy(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "MODULES", ("no_such_name", *doctor.MODULES))
    assert doctor.main() == 1
    assert main(["run", "impl"]) == 1
    done = capsys.readouterr()
    assert "MISSING modules     no_such_name; remedy: pip install" in done.out
    assert "missing: no_such_name\nremedy: pip install" in done.err


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("CXX", "no-such-c++", "install g++"),
        ("TORCH_EXTENSIONS_DIR", "/dev/null/below", "set TORCH_EXTENSIONS_DIR to a writable"),
    ],
)
def test_doctor_names_what_the_simulator_lacks(monkeypatch, tmp_path, capsys, name, value, remedy):
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    monkeypatch.setenv(name, value)
    (line,) = [line for line in _doctor_output(capsys) if line.startswith("MISSING")]
    assert line.split()[1] == "simulator"
    assert remedy in line


@pytest.mark.parametrize("module", ["", "../up", "broken"])
def test_doctor_names_the_error_of_a_back_end_that_cannot_be_imported(
    monkeypatch, tmp_path, capsys, module
):
    monkeypatch.setenv(MODULES, "")  # doctor sets it
    (tmp_path / "broken.py").write_text("raise OSError('no\\nlibrary')")
    monkeypatch.syspath_prepend(tmp_path)
    assert doctor.main("sim", [module]) == 1
    line = capsys.readouterr().out.splitlines()[-1]
    assert re.match(r"\w+Error: .", line)
    assert module != "broken" or line == "OSError: no library"


def test_doctor_reports_an_old_torch(monkeypatch, capsys):
    monkeypatch.setattr("torch.__version__", "2.4.1+cpu")
    monkeypatch.delattr("torch.accelerator")
    assert any(
        "MISSING torch" in line and "pip install 'torch>=2.11'" in line
        for line in _doctor_output(capsys)
    )


def test_a_run_that_cannot_build_the_simulator_prints_the_remedy(command, monkeypatch, tmp_path):
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("CXX", "no-such-c++")
    done = command("run", "torch.nn.parallel", *ONE_CLAUSE)
    assert done.returncode == 4
    assert "install g++ 11 or newer" in done.stdout + done.stderr
    assert "INTERNALERROR" not in done.stdout + done.stderr


def _doctor_output(capsys):
    doctor.main()
    return capsys.readouterr().out.splitlines()
