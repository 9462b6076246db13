"""The command ``run``: output, files and exit status in an empty folder."""

import re
import shlex

import pytest

from spec_tests.machine import clauses
from spec_tests.machine.tests.fixtures import start_python

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


@pytest.fixture(autouse=True)
def wrong_target(write_package):
    """Write the package ``wrong``."""
    write_package("wrong", comm=WRONG_COMM)


def test_a_failure_is_printed_in_at_most_eleven_lines(run_command):
    done = run_command("run", "wrong", *ONE_CLAUSE)
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


@pytest.mark.slow
def test_the_command_after_repeat_runs_the_test_again(run_command):
    first = run_command("run", "wrong", *ONE_CLAUSE, "--verdicts=a.jsonl", "--", "-x", "-qx")
    resuming = ("--resume", "-x", "-n", "0", "-k", "test_", "--maxfail=3")
    resuming += ("--late-copies", "0", "--no-races")
    done = run_command("run", "wrong", *ONE_CLAUSE, "--verdicts=b.jsonl", "--", *resuming)
    for found, more in (first, ""), (done, "--late-copies=0 --no-races"):
        (line, *_) = [each for each in found.stdout.splitlines() if "repeat: " in each]
        words = shlex.split(line.partition("repeat: parallel-conformance ")[2])
        assert words[:4] == ["run", "wrong", "--accelerator=sim", "--clause=comm.scatter.slices"]
        assert words[4:-2] == ["--", *more.split()]
        repeated = run_command(*words)
        assert repeated.returncode == 1, repeated.stdout + repeated.stderr
        assert line in repeated.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "written"),
    [
        (["spec_tests.cli", "run", "wrong"], {"repro"}),
        ([*PYTEST, "--pyargs", "spec_tests", "--target=wrong"], set()),
    ],
    ids=["command", "pytest"],
)
def test_a_run_writes_only_programs_into_the_current_folder(
    tmp_path, monkeypatch, command, written
):
    # Not in the fork server, which places the examples of Hypothesis in this folder.
    monkeypatch.delenv("HYPOTHESIS_STORAGE_DIRECTORY", raising=False)
    process = start_python(tmp_path, "-m", *command, *ONE_CLAUSE)
    process.communicate()
    assert process.returncode == 1
    files = {path.name for path in tmp_path.iterdir()} - {".pytest_cache"}
    assert files == {"wrong", *written}


def test_verbose_prints_the_output_of_pytest(run_command_here):
    status, printed = run_command_here("run", "wrong", *ONE_CLAUSE, "-v")
    assert status == 1
    assert EXAMPLE.search(printed)
    assert "repeat:" not in printed


@pytest.mark.slow
def test_run_imports_a_back_end_that_torch_loads_by_itself_and_repeats_the_option(
    run_command, tmp_path
):
    (tmp_path / "backend.py").write_text("import torch\ndef load(): open('imported', 'w').close()")
    distribution = tmp_path / "backend-1.dist-info"
    distribution.mkdir()
    (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: backend\nVersion: 1\n")
    (distribution / "entry_points.txt").write_text("[torch.backends]\nbackend = backend:load\n")
    done = run_command("run", "wrong", *ONE_CLAUSE, "-p", "backend")
    assert done.returncode == 1, done.stdout + done.stderr
    assert (tmp_path / "imported").exists()
    assert "--clause=comm.scatter.slices -- -pbackend -k " in done.stdout


@pytest.mark.slow
def test_a_worker_that_cannot_start_ends_the_run_with_one_line(run_command, tmp_path, monkeypatch):
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)  # This test may run in a worker.
    text = "import os\nif 'PYTEST_XDIST_WORKER' in os.environ: raise RuntimeError('no device')"
    (tmp_path / "backend.py").write_text(text)
    done = run_command("run", "wrong", *ONE_CLAUSE, "-p", "backend")
    assert done.returncode == 4, done.stdout + done.stderr
    (line,) = [each for each in done.stdout.splitlines() if "cannot start" in each]
    assert line == "ERROR: a worker process cannot start: RuntimeError: no device"


def test_a_run_on_an_incomplete_back_end_ends_with_one_line(run_command, tmp_path):
    text = "import torch\ntorch.utils.rename_privateuse1_backend('incomplete')"
    (tmp_path / "backend.py").write_text(text)
    done = run_command("run", "wrong", "--accelerator=incomplete", "-p", "backend")
    assert done.returncode == 4, done.stdout + done.stderr
    (line,) = [each for each in (done.stdout + done.stderr).splitlines() if "rror" in each]
    assert line.startswith("ERROR: --accelerator incomplete: RuntimeError: ")


def test_require_decided_fails_a_run_that_leaves_a_selected_clause_undecided(run_command_here):
    options = ["--accelerator=sim", "--device-ids=0", "--require-decided"]
    run = ["run", "torch.nn.parallel", *options]
    status, printed = run_command_here(*run, "--clause=comm.gather.current-device")
    assert status == 7, printed
    assert "--require-decided: 1 clause not decided" in printed
    selected = [*run, "--clause=comm.gather.joined", "--clause=comm.gather.always-new"]
    status, printed = run_command_here(*selected)
    assert status == 0, printed
    status, printed = run_command_here(*selected, "--", "-k", "concatenates")
    assert status == 7, printed


def test_a_run_without_a_test_says_so(run_command_here):
    status, printed = run_command_here("run", "wrong", *ONE_CLAUSE, "--", "-k", "no_such_test")
    assert status == 5, printed
    assert "no test was selected" in printed.splitlines()[-1]


@pytest.mark.slow
def test_a_run_that_cannot_build_the_simulator_prints_the_remedy(
    run_command, monkeypatch, tmp_path
):
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("CXX", "no-such-c++")
    done = run_command("run", "torch.nn.parallel", *ONE_CLAUSE)
    assert done.returncode == 4
    assert "install g++ 11 or newer" in done.stdout + done.stderr
    assert "INTERNALERROR" not in done.stdout + done.stderr
