"""The output of a run: progress, failures by cause, Ctrl-C."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from spec_tests.cli.failures import Failures, remove_programs
from spec_tests.cli.main import main
from spec_tests.cli.progress import Progress, RunMonitor
from spec_tests.failure import Fact, Failure
from spec_tests.machine import clauses, judge, verdict_file, verdicts
from spec_tests.machine.tests.fixtures import ROOT
from spec_tests.machine.verdicts import PROGRAM
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


def _test_report(outcome, name, clause="comm.scatter.slices", **properties):
    report = pytest.TestReport(name, ("t", 0, "t"), {}, outcome, None, "call")
    report.user_properties = [("clause", clause), *properties.items()]
    return report


def _failure(failure, clause="comm.scatter.slices", **properties):
    report = _test_report("failed", "a.py::test_it[1]", clause, **properties)
    judge.add_failure(report, failure, KNOWN)
    return report


KNOWN = clauses.load()
DTYPE = Failure("differs", (Fact("output", "dtype"),), "output has another dtype")
MISSING = Failure("differs", (Fact("output", "missing"),), "output is None")
VALUES = Failure("differs", (Fact("output", "values"),), "output[0] has values [0]")


def _summary(failures, reports):
    return failures.summary([test for each in reports for test in verdicts.tests_of(each)])


def test_the_first_failure_of_a_clause_is_printed_and_the_most_frequent_cause_is_first():
    failures = Failures("{} {}".format)
    names = ["even-chunks", "empty-dimension", "surplus-devices", "zero-sizes", "refuses-sparse"]
    names = [f"comm.scatter.{name}" for name in (*names, "refuses-scalars")]
    reports = [_failure(VALUES), *(_failure(DTYPE, name) for name in names)]
    for report in reports:
        report.user_properties.append((PROGRAM, "print(1)"))
        printed = failures.add(report)
        assert printed[0].startswith("FAIL comm.scatter.")
        assert not failures.add(report)
    assert printed[0] == f"FAIL {names[-1]}  a.py::test_it[1]"
    assert _summary(failures, reports) == [
        "7 of 7 failed clauses pass in torch.nn.parallel:",
        "FAIL 6 clauses: output has another dtype",
        *(f"  {name}  python repro/{name.replace('.', '_')}.py" for name in sorted(names)[:5]),
        "  and 1 more clause",
        "FAIL 1 clause: output[0] has values [0]",
        "  comm.scatter.slices  python repro/comm_scatter_slices.py",
    ]
    assert Path("repro/comm_scatter_zero-sizes.py").read_text().endswith("\nprint(1)")


def test_the_command_of_a_failure_selects_the_clause_that_fails_and_the_test():
    def repeat(*names):
        report = _test_report("failed", "a.py::test_it", names[0])
        report.user_properties += [("clause", name) for name in names[1:]]
        facts = (Fact("gradient", "values (zero)"),)
        judge.add_failure(report, Failure("differs", facts, "gradient is zero"), KNOWN)
        return Failures(lambda chosen, test: " ".join(chosen)).add(report)[-2]

    first, failing = "functions.gather.joined", "functions.gather.gradient"
    assert repeat(first, failing) == f"  repeat: {failing}"
    assert repeat(first) == f"  repeat: {failing} {first}"


def test_a_test_that_ends_its_process_in_a_setup_fails_the_run():
    report = pytest.TestReport("a.py::test_it", ("t", 0, "t"), {}, "failed", None, "???")
    judge.add_failure(report, judge.PROCESS_ENDED, KNOWN)
    log = verdict_file.Recorder(None, KNOWN, resume=False, metadata=dict)
    log.pytest_runtest_logreport(_test_report("passed", "a.py::test_other"))
    log.pytest_runtest_logreport(report)
    config = SimpleNamespace(pluginmanager=SimpleNamespace(get_plugin=lambda name: log))
    monitor = RunMonitor()
    monitor.pytest_sessionstart(SimpleNamespace(config=config))
    assert monitor.has_failed()
    assert not monitor.has_only_missing_names()


def test_clauses_that_the_reference_passes_come_first():
    failures = Failures("{} {}".format)
    names = ("scalars-are-copied", "scalar-gradients-are-summed")
    same = Failure(
        "refused", (Fact("error", "RuntimeError: chunk expects at least a"),), "refused"
    )
    reports = [_failure(same, f"divergences.SG-4.{names[0]}")]
    reports += [_failure(DTYPE, f"divergences.SG-4.{names[1]}"), _failure(MISSING)]
    also, other, _ = map(failures.add, reports)
    assert "  torch.nn.parallel violates it, too" in also
    assert "  torch.nn.parallel violates it in another way" in other
    assert [line for line in _summary(failures, reports) if not line.startswith("  ")] == [
        "1 of 3 failed clauses pass in torch.nn.parallel:",
        "FAIL 1 clause: output is None",
        "torch.nn.parallel violates these, too:",
        "FAIL 1 clause: output has another dtype",
        "FAIL 1 clause: refused",
    ]


def test_the_count_of_failed_clauses_leaves_out_those_not_offered_and_says_so():
    missing = Failure("not-offered", (Fact("not offered", "comm.gather"),), "no comm.gather")
    reports = [_failure(DTYPE), _failure(missing, "comm.gather.joined")]
    first, *_ = _summary(Failures("{} {}".format), reports)
    assert first == "1 of 1 failed clauses pass in torch.nn.parallel (without not-offered ones):"


def test_one_error_of_the_target_is_one_cause():
    facts = (Fact("error", "RuntimeError: Expected a device"),)
    pairs = {"refused": "comm.scatter.slices", "differs": "replicate.afresh"}
    reports = [
        _failure(Failure(kind, facts, "-1", "RuntimeError: -1"), name)
        for kind, name in pairs.items()
    ]
    assert _summary(Failures("{} {}".format), reports)[1] == "FAIL 2 clauses: RuntimeError: -1"


def test_one_failure_of_a_test_is_one_cause_of_all_its_clauses():
    report = _test_report("failed", "a.py::test_it", "data_parallel.outputs")
    report.user_properties += [("clause", "data_parallel.gradients")]
    facts = Fact("output", "values"), Fact("gradient", "values")
    judge.add_failure(report, Failure("differs", facts, "output is 1"), KNOWN)
    assert _summary(Failures("{} {}".format), [report])[1] == "FAIL 2 clauses: output is 1"


def test_records_out_of_date_are_no_failures_of_the_target():
    stale = Failure("stale-record", (Fact("register", "stale"),), "remove it")
    first, second, *_ = _summary(Failures("{} {}".format), [_failure(stale)])
    assert first.startswith("tests in the register pass; draft FILE")
    assert second == "FAIL 1 clause: remove it"


def test_the_programs_of_a_clause_replace_those_of_an_earlier_run():
    names = []
    for causes in [(DTYPE, MISSING), (MISSING,)]:
        failures = Failures("{} {}".format)
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
    assert "  |   OSError: last" in Failures("{} {}".format).add(_failure(failure))


def test_a_line_of_progress_follows_a_hundred_tests():
    progress, lines = Progress(), []
    progress._terminal = SimpleNamespace(write_line=lines.append)
    progress._log = SimpleNamespace(verdicts={}, collected=200)
    for number in [*range(100), 98, 99]:  # Other workers report tests that have been set up.
        progress.pytest_runtest_logreport(_test_report("passed", f"test_{number}"))
    assert [line.partition(" tests")[0] for line in lines] == ["100 of 200"]


def start_command(arguments, folder, search_path):
    return subprocess.Popen(
        [sys.executable, "-m", "spec_tests.cli", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": search_path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


@pytest.mark.slow
def test_a_hanging_test_fails_and_the_run_goes_on(tmp_path):
    (tmp_path / "comm.py").write_text(HANGING_COMM)
    run = ["run", "torch.nn.parallel", "--target-map=comm=comm", "--accelerator=sim"]
    run += ["--clause=comm.gather.refuses-none", "--clause=comm.scatter.slices"]
    process = start_command(
        [*run, "--verdicts=a.jsonl", "--", "--timeout=20"], tmp_path, str(ROOT)
    )
    output, _ = process.communicate(timeout=200)
    assert process.returncode == 1
    assert "it has not ended in 20 s" in output
    assert "node down" not in output
    assert f"{tmp_path / 'comm.py'}" in output  # the stack shows the line that waits
    assert runs.load_file(tmp_path / "a.jsonl").verdicts == {
        "comm.gather.refuses-none": "pass",
        "comm.scatter.slices": "fail",
    }


@pytest.mark.slow
def test_the_first_failure_ends_a_run_with_x_also_if_a_test_ends_its_process(tmp_path):
    (tmp_path / "comm.py").write_text("import os\ndef scatter(*args, **kwargs): os._exit(1)\n")
    run = ["run", "torch.nn.parallel", "--target-map=comm=comm", "--accelerator=sim"]
    process = start_command([*run, "--clause=comm.scatter", "--", "-x"], tmp_path, str(ROOT))
    output, _ = process.communicate(timeout=200)
    assert process.returncode == 1
    assert output.count("  | the test ends the process") == 1
    assert re.search(r"^stopped: \d+ of \d+ tests were not run$", output, re.MULTILINE)


@pytest.mark.slow
def test_a_closed_pipe_prints_no_traceback(tmp_path):
    process = start_command(["clauses"], tmp_path, str(ROOT))
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
    (tmp_path / "comm.py").write_text(HANGING_COMM)
    run = ["run", "torch.nn.parallel", "--target-map=comm=comm", "--accelerator=sim"]
    run += ["--clause=comm.gather.refuses-none", "--clause=comm.scatter.slices"]
    run += ["--verdicts=a.jsonl", "--", *options]
    process = start_command(run, tmp_path, str(ROOT))
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
