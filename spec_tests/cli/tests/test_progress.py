"""The output of a run: progress, failures by cause, Ctrl-C."""

import json
import os
import re
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from spec_tests.cli.failures import Failures, remove_programs
from spec_tests.cli.main import main
from spec_tests.cli.progress import Progress, RunMonitor
from spec_tests.failure import Fact, Failure
from spec_tests.machine import clauses, judge, verdict_file
from spec_tests.machine.tests.fixtures import start_python
from spec_tests.machine.verdicts import PROGRAM, VIOLATED, verdicts_of
from spec_tests.reporting import runs

#: The module ``comm`` of a package whose scatter never returns, and ignores KeyboardInterrupt.
HANGING_COMM = """
import time
from torch.nn.parallel.comm import *
def scatter(*args, **kwargs):
    while True:
        try:
            time.sleep(60)
        except BaseException:
            pass
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Change to an empty folder, because a run writes programs."""
    monkeypatch.chdir(tmp_path)


SPECIFICATION = clauses.load()
ONE = "comm.scatter.slices"
COMMAND = "parallel-conformance run theirs"


def _test_report(outcome, name, *names, **properties):
    """Return the report of a test of the clauses ``names``."""
    report = pytest.TestReport(name, ("t", 0, "t"), {}, outcome, None, "call")
    report.user_properties = [*(("clause", each) for each in names), *properties.items()]
    return report


def _failure(failure, *names, **properties):
    """Return the report of a test that fails."""
    report = _test_report("failed", "a.py::test_it[1]", *(names or [ONE]), **properties)
    judge.add_failure(report, failure, SPECIFICATION)
    return report


def _differs(text, *facts):
    return Failure("differs", facts, text)


DTYPE = _differs("output has another dtype", Fact("output", "dtype"))
MISSING = _differs("output is None", Fact("output", "missing"))
VALUES = _differs("output[0] has values [0]", Fact("output", "values"))
GRADIENT = _differs("gradient is zero", Fact("gradient", "values (zero)"))
BOTH = _differs("output is 1", Fact("output", "values"), Fact("gradient", "values"))
NO_DEVICE = (Fact("error", "RuntimeError: Expected a device"),)
#: Six clauses, in alphabetical order.
SIX = [
    *("comm.scatter.empty-dimension", "comm.scatter.even-chunks", "comm.scatter.refuses-scalars"),
    *("comm.scatter.refuses-sparse", "comm.scatter.surplus-devices", "comm.scatter.zero-sizes"),
]
#: Failures of tests, with the clauses of the test.
FAILURES = [
    (VALUES, ONE),
    *((DTYPE, name) for name in SIX),
    (Failure("refused", NO_DEVICE, "-1", "RuntimeError: -1"), "functions.gather.joined"),
    (Failure("differs", NO_DEVICE, "-1", "RuntimeError: -1"), "replicate.afresh"),
    (BOTH, "data_parallel.outputs", "data_parallel.gradients"),
    (MISSING, "divergences.SG-4.scalars-are-copied"),
    (DTYPE, "devices.current-device.set"),
    (Failure("not-offered", (Fact("not offered", "comm.gather"),), "-"), "comm.gather.joined"),
    (Failure("stale-record", (Fact("register", "stale"),), "remove it"), "comm.gather.always-new"),
]


def test_the_end_of_a_run_lists_the_causes_of_failures_the_most_frequent_first():
    reports = [_failure(*each) for each in FAILURES]
    lines = Failures(COMMAND).summary([test for each in reports for test in verdicts_of(each)])
    assert lines == [
        "1 failed clause about devices:",
        "FAIL 1 clause: output has another dtype",
        "  devices.current-device.set",
        "tests in the register pass; draft FILE --divergences REGISTER updates it:",
        "FAIL 1 clause: the recorded tests pass",
        "  comm.gather.always-new",
        "torch.nn.parallel passes 11 of 12 failed clauses (without not-offered ones):",
        "FAIL 6 clauses: output has another dtype",
        *(f"  {name}" for name in SIX[:5]),
        "  and 1 more clause",
        "FAIL 2 clauses: output is 1",
        "  data_parallel.gradients",
        "  data_parallel.outputs",
        "FAIL 2 clauses: RuntimeError: -1",
        "  functions.gather.joined",
        "  replicate.afresh",
        "FAIL 1 clause: output[0] has values [0]",
        "  comm.scatter.slices",
        "torch.nn.parallel violates these, too:",
        "FAIL 1 clause: output is None",
        "  divergences.SG-4.scalars-are-copied (in another way)",
    ]


def test_a_cause_marks_its_clauses_that_the_reference_violates():
    violated = "divergences.CO-4.repeated-devices-get-copies"
    failure = _differs("output is 1", Fact("output", "value"))
    report = _failure(failure, violated)
    report.user_properties.append((VIOLATED, "comm.broadcast-coalesced.no-overlap"))
    assert Failures(COMMAND).summary(verdicts_of(report)) == [
        "torch.nn.parallel passes 1 of 2 failed clauses:",
        "FAIL 2 clauses: output is 1",
        "  comm.broadcast-coalesced.no-overlap",
        f"  {violated} (torch.nn.parallel violates it, too)",
    ]


def test_the_first_failure_of_a_clause_is_printed_and_has_a_program():
    failures = Failures(COMMAND)
    for name in SIX:
        report = _failure(DTYPE, name, **{PROGRAM: "print(1)"})
        assert failures.add(report)[0] == f"FAIL {name}  a.py::test_it[1]"
        assert not failures.add(report)
    assert failures.summary(verdicts_of(report))[-1] == (
        "  comm.scatter.zero-sizes  python repro/comm_scatter_zero-sizes.py"
    )
    assert Path("repro/comm_scatter_zero-sizes.py").read_text().endswith("\nprint(1)")


def test_the_command_of_a_failure_selects_the_clause_that_fails_and_the_test():
    first, failing = "functions.gather.joined", "functions.gather.gradient"
    for names, chosen in ((first, failing), [failing]), ([first], [failing, first]):
        options = " ".join(f"--clause={name}" for name in chosen)
        printed = Failures(COMMAND).add(_failure(GRADIENT, *names))
        assert printed[-2] == f"  repeat: {COMMAND} {options} -- -k test_it"


def test_a_test_that_ends_its_process_in_a_setup_fails_the_run():
    report = pytest.TestReport("a.py::test_it", ("t", 0, "t"), {}, "failed", None, "???")
    judge.add_failure(report, judge.PROCESS_ENDED, SPECIFICATION)
    log = verdict_file.Recorder(None, SPECIFICATION, resume=None, metadata=dict)
    log.pytest_runtest_logreport(_test_report("passed", "a.py::test_other", ONE))
    log.pytest_runtest_logreport(report)
    plugins = SimpleNamespace(get_plugin=lambda name: log)
    config = SimpleNamespace(pluginmanager=plugins, getoption={}.get)
    monitor = RunMonitor()
    monitor.pytest_sessionstart(SimpleNamespace(config=config))
    assert monitor.has_failed()
    assert not monitor.has_only_missing_names()


def test_the_programs_of_a_clause_replace_those_of_an_earlier_run():
    names = []
    for causes in [(DTYPE, MISSING), (MISSING,)]:
        failures = Failures(COMMAND)
        for failure in causes:
            failures.add(_failure(failure, **{PROGRAM: failure.text}))
        names.append({path.name for path in Path("repro").iterdir()})
    assert names == [
        {"comm_scatter_slices.py", "comm_scatter_slices_2.py"},
        {"comm_scatter_slices.py"},
    ]
    assert Path("repro/comm_scatter_slices.py").read_text().endswith("\noutput is None")
    Path("repro/comm_scatter_slices_3.py").write_text("a file of the user")
    remove_programs(["comm.scatter.slices", "comm.gather"])
    assert [path.name for path in Path("repro").iterdir()] == ["comm_scatter_slices_3.py"]


def test_a_long_traceback_ends_with_its_error():
    frames = "".join(f'    File "{number}.py"\n' for number in range(40))
    text = f"Traceback (most recent call last):\n{frames}  OSError: last"
    failure = Failure("error", (Fact("error", "OSError: last"),), text, "OSError: last")
    assert "  |   OSError: last" in Failures(COMMAND).add(_failure(failure))


def test_a_line_of_progress_follows_a_hundred_tests():
    progress, lines = Progress(), []
    progress._terminal = SimpleNamespace(write_line=lines.append)
    progress._recorder = SimpleNamespace(verdicts={}, collected=200)
    for number in [*range(100), 98, 99]:  # Other workers report tests that have been set up.
        progress.pytest_runtest_logreport(_test_report("passed", f"test_{number}", ONE))
    assert [line.partition(" tests")[0] for line in lines] == ["100 of 200"]


def start_run(comm, *options):
    """Run the suite on torch.nn.parallel with another module ``comm``."""
    Path("comm.py").write_text(comm)
    run = ["run", "torch.nn.parallel", "--target-map=comm=comm", "--accelerator=sim"]
    return start_python(Path.cwd(), "-m", "spec_tests.cli", *run, *options)


#: A clause that `HANGING_COMM` violates, and one that it does not.
TWO_CLAUSES = "--clause=comm.gather.refuses-none", "--clause=comm.scatter.slices"


@pytest.mark.slow
def test_the_first_failure_ends_a_run_with_x_also_if_a_test_ends_its_process():
    comm = "import os\ndef scatter(*args, **kwargs): os._exit(1)\n"
    process = start_run(comm, "--clause=comm.scatter", "--", "-x")
    output, _ = process.communicate(timeout=200)
    assert process.returncode == 1
    assert output.count("  | the test ends the process") == 1
    assert "node down" not in output
    assert re.search(r"^stopped: \d+ of \d+ tests were not run$", output, re.MULTILINE)


@pytest.mark.slow
def test_a_closed_pipe_prints_no_traceback():
    process = start_python(Path.cwd(), "-m", "spec_tests.cli", "clauses")
    assert process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=60) == -signal.SIGPIPE


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "number"),
    [(["-n", "2"], signal.SIGINT), ([], signal.SIGTERM)],
    ids=["ctrl-c", "sigterm"],
)
def test_a_signal_ends_a_hanging_run_with_the_verdicts_so_far(tmp_path, capsys, options, number):
    process = start_run(HANGING_COMM, *TWO_CLAUSES, "--verdicts=a.jsonl", "--", *options)
    lines = iter(process.stdout.readline, "")
    assert any("running for 10 s: spec_tests/comm/test_scatter.py" in line for line in lines)
    if number is signal.SIGINT:  # Ctrl-C signals all processes of the terminal.
        os.killpg(process.pid, number)
        time.sleep(0.1)
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "interrupted" in output
    assert "comm                       0           0           0           1" in output
    assert "INTERNALERROR" not in output
    assert "to continue: repeat the command with --resume" in output
    *_, last = (tmp_path / "a.jsonl").read_text().splitlines()
    assert json.loads(last) == verdict_file.INTERRUPTED
    assert main(["report", str(tmp_path / "a.jsonl"), "--to", str(tmp_path / "a.html")]) == 0
    assert "the run was interrupted" in capsys.readouterr().out
    assert runs.load_file(tmp_path / "a.jsonl").verdicts == {"comm.gather.refuses-none": "pass"}


@pytest.mark.slow
def test_workers_print_no_warning_after_a_signal_to_the_run():
    process = start_run("from torch.nn.parallel.comm import *\n", "--clause=comm", "--", "-n", "2")
    assert any(" tests; clauses: " in line for line in iter(process.stdout.readline, ""))
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "Warning" not in output
