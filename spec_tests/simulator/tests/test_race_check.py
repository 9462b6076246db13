"""The pytest plugin for the race detector: a test that races fails, except with --no-races."""

import re

import pytest
import torch

from spec_tests import simulator
from spec_tests.machine.tests.fixtures import ROOT

pytestmark = pytest.mark.usefixtures("sim")
pytest_plugins = ["pytester"]

CONFTEST = """
from spec_tests import simulator
from spec_tests.machine.race_check import pytest_runtest_call
pytest_plugins = ["spec_tests.machine.options"]
simulator.enable(4)
"""
TEST = """
import torch

def test_it():
    side = torch.Stream(device="sim:0")
    with side:
        x = torch.ones(4).to("sim:0", non_blocking=True)
    x + 1
"""

BLOCKS = """
import torch
from spec_tests import simulator

def test_it():
    side = torch.Stream(device="sim:0")
    with simulator.races(), side:
        x = torch.ones(4, device="sim:0")
    with simulator.races() as found:
        x + 1
    assert found == []
"""


@pytest.fixture
def run(pytester, run_pytest):
    """Return a function that runs ``TEST`` in a new process."""
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(TEST)
    return run_pytest


def test_race_fails_test_and_is_reported(run):
    result = run()
    result.assert_outcomes(failed=1)
    # The test of the readme checks the other lines of a report.
    file = "    *test_race_fails_test_and_is_reported.py:{} in test_it"
    result.stdout.fnmatch_lines(["race on 16 bytes of sim:0, *", file.format(6), file.format(7)])


def test_no_races_option_lets_a_test_with_a_race_pass(run):
    run("--no-races").assert_outcomes(passed=1)


def test_late_copies_option_makes_an_unordered_read_return_nan(run, pytester):
    pytester.makepyfile(TEST.replace("    x + 1", "    assert (x + 1).tolist() == [2] * 4"))
    run("--no-races").assert_outcomes(passed=1)
    result = run("--no-races", "--late-copies=0")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines("*nan*")


def test_races_are_added_to_the_innermost_block_only():
    with simulator.races() as outer:
        with simulator.races() as inner:
            _race()
        assert len(inner) == 2
    assert outer == []


def test_work_before_the_outermost_block_counts_as_finished(run, pytester):
    pytester.makepyfile(BLOCKS)
    run("--no-races").assert_outcomes(passed=1)


def test_each_pair_of_locations_is_reported_once():
    with simulator.races() as found:
        for _ in range(3):
            _race()
    assert len(found) == 2


def test_readme_program_prints_the_report_in_the_readme(capsys):
    text = (ROOT / "spec_tests" / "simulator" / "README.md").read_text()
    programs = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    namespace = {}
    exec("\n".join(programs).replace("device_count=2", "device_count=4"), namespace)
    torch.accelerator.synchronize(0)
    (expected,) = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
    assert _stable_words(capsys.readouterr().out) == _stable_words(expected)


def _stable_words(report):
    """Return the first words of each line of a report, without paths and stream numbers."""
    lines = [line.split() for line in report.splitlines()]
    return [line[:3] for line in lines if line[0] in ("race", "first", "second", "remedy")]


def _race():
    side = torch.Stream(device="sim:0")
    with side:
        x = torch.ones(4).to("sim:0", non_blocking=True)
    x + 1
