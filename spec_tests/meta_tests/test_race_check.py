"""The suite's own use of the detector: a test that races fails, unless races are let pass."""

import os
import re
from pathlib import Path

import pytest
import torch

from spec_tests import simulator

pytestmark = pytest.mark.usefixtures("sim")
pytest_plugins = ["pytester"]
ROOT = Path(__file__).resolve().parents[2]
HOME = Path.home()

CONFTEST = """
from spec_tests import simulator
from spec_tests.harness.pytest_plugin.race_check import pytest_runtest_call
pytest_plugins = ["spec_tests.harness.pytest_plugin.options"]
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


@pytest.fixture
def run(pytester, monkeypatch, fork_server):
    """Runs the test in a process of its own."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    # pytester moves the home; the simulator is built once, in the real one's cache.
    monkeypatch.setenv("HOME", str(HOME))
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(TEST)
    return lambda *options: fork_server.run_pytest(
        "-p", "no:cacheprovider", *options, cwd=pytester.path, env=os.environ
    )


def test_a_race_fails_the_test_and_is_told(run):
    found = run()
    found.assert_outcomes(failed=1)
    found.stdout.fnmatch_lines(
        [
            "race on 16 bytes of sim:0, allocated by aten::empty",
            "  first   aten::copy_ writes on stream * of sim:0, given by MainThread,",
            "    *test_a_race_fails_the_test_and_is_told.py:6 in test_it",
            "  second  aten::add reads on the default stream of sim:0, given by MainThread,",
            "    *test_a_race_fails_the_test_and_is_told.py:7 in test_it",
            "  remedy  let the default stream of sim:0 wait for stream * of sim:0 *",
        ]
    )


def test_races_pass_where_they_are_let(run):
    run("--no-races").assert_outcomes(passed=1)


def test_late_copies_show_in_values(run, pytester):
    pytester.makepyfile(TEST.replace("    x + 1", "    assert (x + 1).tolist() == [2] * 4"))
    run("--no-races").assert_outcomes(passed=1)
    found = run("--no-races", "--late-copies=0")
    found.assert_outcomes(failed=1)
    found.stdout.fnmatch_lines("*nan*")


def test_late_copies_do_nothing_without_the_simulator(run, pytester):
    pytester.makeconftest(CONFTEST.replace("simulator.enable(4)", ""))
    pytester.makepyfile("def test_it(): pass")
    run("--late-copies=0").assert_outcomes(passed=1)


def test_the_innermost_block_has_the_race():
    with simulator.races() as outer:
        with simulator.races() as inner:
            _race()
        assert len(inner) == 2
    assert outer == []


def test_each_pair_of_places_is_told_once():
    with simulator.races() as found:
        for _ in range(3):
            _race()
    assert len(found) == 2


def test_the_missing_record_is_told():
    with simulator.races() as found:
        _race()
    use, end = sorted(found, key=lambda race: race.is_free)
    assert not use.is_free
    assert end.is_free
    assert "record_stream(the default stream of sim:0)" in end.remedy


def test_the_program_in_the_readme_says_what_it_says(capsys):
    text = (ROOT / "spec_tests" / "simulator" / "README.md").read_text()
    programs = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    kept = {}
    exec("\n".join(programs).replace("device_count=2", "device_count=4"), kept)
    torch.accelerator.synchronize(0)
    (shown,) = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
    assert _sides(capsys.readouterr().out) == _sides(shown)


def _sides(report):
    """The words of a report that no address and no number of a stream changes."""
    lines = [line.split() for line in report.splitlines()]
    return [line[:3] for line in lines if line[0] in ("race", "first", "second", "remedy")]


def _race():
    side = torch.Stream(device="sim:0")
    with side:
        x = torch.ones(4).to("sim:0", non_blocking=True)
    x + 1
