"""`reports.gpu`: time limits, killed steps and the list of steps."""

import json
import os
import time
from pathlib import Path

import pytest

from reports.gpu.__main__ import ROOT, Step, list_steps, run_steps

LONG = 1000


def shell_step(name, script, seconds=LONG):
    return Step(name, seconds, ("sh", "-c", script))


def codes(out):
    lines = (out / "steps.jsonl").read_text().splitlines()
    return {each["step"]: each["code"] for each in map(json.loads, lines)}


def test_all_steps_run_in_order_and_failures_are_counted(tmp_path, capsys):
    steps = [shell_step(name, f"echo run {name}; exit {name[1]}") for name in ("a0", "b1")]
    assert run_steps(steps, tmp_path, LONG) == 1
    assert list(codes(tmp_path).items()) == [("a0", 0), ("b1", 1)]
    assert (tmp_path / "log.txt").read_text() == "run a0\nrun b1\n"
    assert "run b1" in capsys.readouterr().out


def test_a_step_at_its_limit_is_killed_with_its_children(tmp_path):
    child = tmp_path / "child"
    script = f"sleep 1000 & echo $! > {child}.new; mv {child}.new {child}; wait"
    started = time.monotonic()
    assert run_steps([shell_step("hangs", script, 2)], tmp_path, LONG) == 1
    assert time.monotonic() - started < LONG
    assert codes(tmp_path) == {"hangs": None}
    while is_running(int(child.read_text())):  # The signal arrives later.
        time.sleep(0.01)


def is_running(pid):
    """Return whether the process runs: a killed child may wait for its new parent."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def test_no_step_starts_after_the_time_limit(tmp_path):
    assert run_steps([shell_step("late", "exit 0")], tmp_path, -1) == 1
    assert codes(tmp_path) == {"late": None}


@pytest.mark.parametrize("accelerator", ["cuda", "sim"])
def test_the_steps_fit_into_nine_minutes_and_their_files_exist(tmp_path, accelerator):
    steps = list(list_steps(tmp_path, accelerator, 2))
    assert sum(step.seconds for step in steps) <= 9 * 60
    files = [part.partition("::")[0] for step in steps for part in step.command]
    files = [part for part in files if part.startswith(("spec_tests", "bench/"))]
    assert len(files) >= len(steps) - 1
    assert [file for file in files if not (ROOT / file).exists()] == []
