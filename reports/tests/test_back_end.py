"""The command of ``tox -e back-end``: it runs the suite with the devices of a back end."""

import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = Path(__file__).resolve().parents[2] / ".ci" / "back_end.py"


def call(*arguments):
    done = subprocess.run(
        [sys.executable, COMMAND, *arguments], capture_output=True, text=True, timeout=250
    )
    return done.returncode, done.stdout


@pytest.mark.machinery
def test_the_command_runs_the_clauses_on_the_devices(tmp_path):
    # The simulator stands for a back end, and `json` for its module.
    verdicts = tmp_path / "verdicts.jsonl"
    options = ["--clause", "comm.get-device-index", "--verdicts", str(verdicts)]
    status, text = call("sim", "json", *options, "--", "-n", "0")
    assert status == 0, text
    assert "devices: sim:0, sim:1" in text
    assert "-pjson" in verdicts.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["dev"], "usage: tox -e back-end -- NAME MODULE"),
        (["dev", "no_such_module"], "The module no_such_module cannot be imported (No module"),
    ],
    ids=["no module", "a missing module"],
)
def test_wrong_arguments_are_explained(arguments, expected):
    status, text = call(*arguments)
    assert status == 2
    assert text.startswith(expected)
