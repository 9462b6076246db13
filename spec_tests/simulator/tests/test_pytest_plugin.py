"""The pytest plugin of the simulator: devices, and tests that fail because of a race."""

import functools
import re

import pytest
import torch

from spec_tests import simulator
from spec_tests.machine.tests.fixtures import ROOT
from spec_tests.machine.verdict_file import read

pytestmark = pytest.mark.usefixtures("sim")
pytest_plugins = ["pytester"]

PLUGIN = "spec_tests.simulator.pytest_plugin"
TEST = """
import torch

def test_it():
    side = torch.Stream(device="sim:0")
    with side:
        x = torch.ones(4).to("sim:0", non_blocking=True)
    x + 1
"""

UNCHECKED = TEST.replace("test_it", "test_without_check")
DEVICES = """
import torch

def test_it(sim_devices):
    assert sim_devices == tuple(torch.device("sim", index) for index in range(3))
    torch.ones(1, device=sim_devices[2])
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
    """Return a function that runs ``TEST`` with the plugin in a new process."""
    pytester.makepyfile(TEST)
    return functools.partial(run_pytest, "-p", PLUGIN, "--sim-devices=4", "--races")


def test_race_fails_test_and_is_reported(run):
    result = run()
    result.assert_outcomes(failed=1)
    # The test of the readme checks the other lines of a report.
    file = "    *test_race_fails_test_and_is_reported.py:{} in test_it"
    result.stdout.fnmatch_lines(["race on 16 bytes of sim:0, *", file.format(6), file.format(7)])


def test_no_races_option_lets_a_test_with_a_race_pass(run):
    run("--no-races").assert_outcomes(passed=1)


def test_a_failed_test_also_shows_its_races(run, pytester):
    pytester.makepyfile(f"{TEST}    assert False, 'of the test'")
    result = run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*AssertionError: of the test", "race on 16 bytes of sim:0, *"])


def test_a_conftest_file_that_looks_for_devices_finds_them(run_pytest, pytester):
    pytester.makeconftest("import torch\nCOUNT = torch.accelerator.device_count()")
    pytester.makepyfile("def test_it():\n    import conftest\n    assert conftest.COUNT == 3")
    run_pytest("-p", PLUGIN, "--sim-devices=3").assert_outcomes(passed=1)


def test_a_conftest_file_can_enable_the_devices(run_pytest, pytester):
    pytester.makeconftest(
        f"from spec_tests import simulator\nsimulator.enable(3)\npytest_plugins = ['{PLUGIN}']"
    )
    pytester.makepyfile(test_devices=DEVICES, test_race=TEST)
    run_pytest("--races", "-n2").assert_outcomes(passed=1, failed=1)


@pytest.mark.parametrize("how", ["def test_it(races):", "@pytest.mark.races\ndef test_it():"])
def test_a_fixture_or_a_marker_checks_one_test(run_pytest, pytester, how):
    text = TEST.replace("def test_it():", how)
    pytester.makepyfile(f"import pytest{text}{text.replace('test_it', 'test_other')}{UNCHECKED}")
    run_pytest("-p", PLUGIN, "--sim-devices=4").assert_outcomes(failed=2, passed=1)


def test_the_fixture_is_a_tuple_of_the_devices_also_in_workers(run_pytest, pytester):
    pytester.makepyfile(DEVICES)
    run_pytest("-p", PLUGIN, "--sim-devices=3", "-n2").assert_outcomes(passed=1)


def test_without_devices_or_a_compiler_a_test_is_skipped_with_the_reason(
    run_pytest, pytester, monkeypatch, tmp_path
):
    pytester.makepyfile(DEVICES)
    result = run_pytest("-p", PLUGIN, "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines("SKIPPED*needs simulated devices: --sim-devices N")
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    monkeypatch.setenv("CXX", "no-such-compiler")
    result = run_pytest("-p", PLUGIN, "-rs", "--sim-devices=3")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines("SKIPPED*needs no-such-compiler to be built: install g++ *")


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("--sim-devices=65", "--sim-devices 65: sim can have 1 to 64 devices, not 65"),
        ("--sim-devices=two", "argument --sim-devices: invalid int value: 'two'"),
        ("--sim-as-cuda", "--sim-as-cuda: --sim-devices N is missing"),
        ("--races", "--races: --sim-devices N is missing"),
        ("--late-copies=-1", "--late-copies -1: a seed is 0 or larger"),
        ("--late-copies=0", "--late-copies: --sim-devices N is missing"),
    ],
)
def test_a_wrong_option_is_refused(run_pytest, option, text):
    result = run_pytest("-p", PLUGIN, option)
    assert result.ret == 4
    assert text in "\n".join([*result.outlines, *result.errlines])


def test_an_older_pytorch_is_refused(monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.9.1+cpu")
    with pytest.raises(RuntimeError, match=r"needs PyTorch 2\.11 or newer, this is 2\.9\.1"):
        simulator.enable()


@pytest.mark.parametrize(("option", "passed"), [("--no-races", 2), ("--races", 0)])
def test_the_suite_and_the_plugin_share_the_options(
    run_suite_in_new_process, tmp_path, option, passed
):
    racing = TEST.partition("def test_it():")[2]
    body = "import torch\n" + "".join(
        f'@clause("a.{name}")\ndef test_{name}(target):{racing}' for name in ("one", "two")
    )
    file = tmp_path / "verdicts.jsonl"
    result = run_suite_in_new_process(body, "-p", PLUGIN, option, "-n2", f"--verdicts={file}")
    result.assert_outcomes(passed=passed, failed=2 - passed)
    kinds = [test.failure.kind for test in read(file) if test.failure]
    assert kinds == ["race"] * (2 - passed)


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
