"""`reports.gpu_day`: time limits, resumed steps and the list of steps."""

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from reports.gpu_day import __main__ as program
from reports.gpu_day.steps import Setup, Step, list_steps

#: Seconds for the steps in one call of nine minutes.
CALL_SECONDS = 9 * 60 - program.RESERVED_SECONDS
#: Number of calls that must be enough to run all steps.
CALLS = 3
#: A time limit in seconds that no test reaches.
LONG = 1000


def shell_step(script, name="step", seconds=LONG, **fields):
    """Return a step that runs a shell script."""
    return Step(name, "purpose", ("sh", "-c", script), seconds, **fields)


def logged(out):
    """Return name and exit status of each step in the log."""
    lines = (out / "steps.jsonl").read_text().splitlines()
    return [(each["step"], each["code"]) for each in map(json.loads, lines)]


@pytest.fixture
def pipe(tmp_path):
    """Yield a named pipe and its read end. A read returns b"" after the last writer has ended."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    read_end = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(read_end, True)
    yield path, read_end
    os.close(read_end)


def test_a_step_at_its_limit_is_killed_with_its_children_and_not_repeated(pipe, tmp_path):
    path, read_end = pipe
    step = shell_step(f"(echo alive; sleep 1000) > {path} & cat; wait", seconds=3)
    assert program.run_steps([step], tmp_path, LONG)
    assert [os.read(read_end, 100), os.read(read_end, 100)] == [b"alive\n", b""]
    assert program.run_steps([step], tmp_path, LONG)
    assert logged(tmp_path) == [("step", None)]


def test_system_exit_while_waiting_kills_the_process_and_its_children(pipe, tmp_path, monkeypatch):
    path, read_end = pipe
    wait = subprocess.Popen.wait

    def exit_once_the_child_writes(process, seconds=None):
        if seconds is None:
            return wait(process)
        while not os.read(read_end, 100):  # The pipe is empty until the child writes to it.
            time.sleep(0.01)
        raise SystemExit

    monkeypatch.setattr(subprocess.Popen, "wait", exit_once_the_child_writes)
    step = shell_step(f"(echo alive; sleep 1000) > {path} & wait")
    with pytest.raises(SystemExit):
        program.run_steps([step], tmp_path, 2 * LONG)
    assert os.read(read_end, 100) == b""


def test_steps_run_in_order_and_a_second_call_repeats_only_the_named_one(tmp_path, capsys):
    steps = [shell_step(f"echo run {name}; exit {code}", name) for code, name in enumerate("ab")]
    assert program.run_steps(steps, tmp_path, 2 * LONG)
    assert capsys.readouterr().out.count("run a\n") == 1
    assert program.run_steps(steps, tmp_path, 2 * LONG, again=["b"])
    assert logged(tmp_path) == [("a", 0), ("b", 1), ("b", 1)]
    assert (tmp_path / "b.log").read_text() == "run b\nrun b\n"


def test_step_killed_after_progress_is_resumed_by_the_next_call(tmp_path):
    file = tmp_path / "verdicts.jsonl"
    # The first process writes a line and hangs. The second one finds the file and ends.
    script = f"test -e {file} && exit 0; echo line > {file}; sleep 1000"
    step = shell_step(script, seconds=1, verdicts=file)
    assert not program.run_steps([step], tmp_path, LONG)
    assert program.run_steps([step], tmp_path, LONG)
    assert logged(tmp_path) == [("step", 0)]


def test_step_killed_at_the_end_of_the_call_is_not_done(tmp_path, monkeypatch):
    monkeypatch.setattr(program, "LEAST_SECONDS", 0)
    step = shell_step("sleep 1000", verdicts=tmp_path / "verdicts.jsonl")
    assert not program.run_steps([step], tmp_path, 0.2)
    assert not (tmp_path / "steps.jsonl").exists()


def test_step_that_cannot_be_resumed_starts_only_if_its_whole_limit_is_left(tmp_path):
    steps = [
        shell_step("exit 7", "not-resumable", 50),
        shell_step("exit 8", "resumable", 50, verdicts=tmp_path / "v"),
    ]
    assert not program.run_steps(steps, tmp_path, 40)
    assert logged(tmp_path) == [("resumable", 8)]
    assert program.run_steps(steps, tmp_path, 60)
    assert logged(tmp_path)[1:] == [("not-resumable", 7)]


def test_step_with_a_skip_reason_is_logged_as_not_run_with_the_reason(tmp_path):
    assert program.run_steps([shell_step("exit 1", skip_reason="no tool")], tmp_path, LONG)
    line = json.loads((tmp_path / "steps.jsonl").read_text())
    assert line == {"step": "step", "not-run": "no tool"}


def test_time_limits_of_all_steps_fit_into_three_calls(tmp_path):
    steps = list_steps(Setup(tmp_path, "cuda", 16))
    assert sum(step.seconds for step in steps) <= CALLS * CALL_SECONDS
    assert all(step.seconds <= CALL_SECONDS for step in steps)
    assert len({step.name for step in steps}) == len(steps)


def test_steps_that_write_the_same_file_of_verdicts_have_different_tests(tmp_path):
    # `--resume` would skip a test that already has a verdict from another step.
    steps = list_steps(Setup(tmp_path, "cuda", 16))
    shared = [step for step in steps if step.verdicts == tmp_path / "checks.jsonl"]
    paths = [part for step in shared for part in step.command if part.startswith("spec_tests")]
    assert len(shared) == 3
    assert len(set(paths)) == len(paths)


def test_the_files_that_the_steps_run_exist(tmp_path):
    root = Path(program.__file__).parents[2]
    parts = [part for step in list_steps(Setup(tmp_path, "cuda", 16)) for part in step.command]
    files = [part for part in parts if part.startswith(("spec_tests/", "bench/", "impl_tests/"))]
    assert files
    assert [file for file in files if not (root / file).exists()] == []


def test_steps_that_need_cuda_are_skipped_on_the_simulator(tmp_path):
    steps = list_steps(Setup(tmp_path, "sim", 2))
    reasons = {step.name: step.skip_reason for step in steps if step.skip_reason}
    assert reasons == dict.fromkeys(["bench-comm", "memcheck", "order", "nccl"], "needs CUDA")


def test_exit_status_is_1_while_steps_are_left_and_0_afterwards(tmp_path, monkeypatch, capsys):
    steps = [shell_step("exit 0", "first", 1), shell_step("exit 0", "second", 90)]
    monkeypatch.setattr(program, "list_steps", lambda setup: steps)
    monkeypatch.setattr(program.signal, "signal", lambda *arguments: None)
    arguments = ["--out", str(tmp_path / "new" / "out"), "--minutes"]
    assert program.main([*arguments, "1"]) == 1
    assert "call it again" in capsys.readouterr().out
    assert program.main([*arguments, "2"]) == 0
    assert program.main([*arguments, "1", "--again", "second"]) == 1
