"""`reports.gpu_day`: time limits, resumed steps and saved results."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from reports.gpu_day import __main__ as program
from reports.gpu_day.process import TAIL_BYTES, run
from reports.gpu_day.requirements import check_requirements
from reports.gpu_day.runner import is_complete, open_log, run_steps
from reports.gpu_day.step_log import StepResult
from reports.gpu_day.steps import Setup, Step, list_steps
from reports.gpu_day.summary import format_summary
from reports.tests.samples import make_benchmark_run

#: Seconds for the steps in one call of nine minutes.
CALL_SECONDS = 9 * 60 - 8
#: Number of calls that must be enough to run all steps.
CALLS = 3
#: A time limit in seconds that no test reaches.
LONG = 1000.0


@pytest.fixture
def setup(tmp_path):
    """Return a setup for CUDA with empty folders for results and temporary files."""
    for name in ("out", "scratch"):
        tmp_path.joinpath(name).mkdir()
    return Setup(tmp_path / "out", tmp_path / "scratch", "cuda", 16)


@pytest.fixture
def pipe(tmp_path):
    """Yield a named pipe and its read end. A read returns b"" after the last writer has ended."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    read_end = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(read_end, True)
    yield path, read_end
    os.close(read_end)


def shell_step(script, name="step", seconds=LONG, **fields):
    """Return a step that runs a shell script."""
    return Step(name, "purpose", ("sh", "-c", script), seconds, **fields)


def logged_results(setup):
    """Return name, status and exit status of each logged step."""
    return [(each.step, each.status, each.code) for each in open_log(setup).results()]


def test_process_that_hangs_is_killed_with_its_children(pipe, tmp_path):
    path, read_end = pipe
    hangs = f"(echo alive; sleep 1000) > {path} & cat; wait"
    completed = run(["sh", "-c", hangs], 3.0, {}, tmp_path / "log")
    assert completed.code is None
    assert [os.read(read_end, 100), os.read(read_end, 100)] == [b"alive\n", b""]


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
    with pytest.raises(SystemExit):
        run(["sh", "-c", f"(echo alive; sleep 1000) > {path} & wait"], LONG, {}, tmp_path / "log")
    assert os.read(read_end, 100) == b""


def test_process_result_has_the_last_bytes_of_the_output(tmp_path):
    prints = "import sys; print('x' * 10**6, flush=True); print('\\udcff', 'end', file=sys.stderr)"
    completed = run(
        [sys.executable, "-c", prints],
        LONG,
        {"PYTHONIOENCODING": ":surrogateescape"},
        tmp_path / "log",
    )
    assert (completed.code, len(completed.tail)) == (0, TAIL_BYTES)
    assert completed.tail.endswith("end\n")


def test_steps_run_in_order_and_a_second_call_does_not_repeat_them(setup):
    steps = [
        shell_step(f"echo {name} >> {setup.scratch}/trace; exit {code}", name)
        for code, name in enumerate("ab")
    ]
    for _ in range(2):
        run_steps(steps, setup, 2 * LONG)
    assert (setup.scratch / "trace").read_text().split() == ["a", "b"]
    assert logged_results(setup) == [("a", "ended", 0), ("b", "ended", 1)]
    assert is_complete(steps, setup)


def test_step_killed_after_progress_is_resumed_by_the_next_call(setup):
    file = setup.out / "verdicts.jsonl"
    # The first process writes a line and hangs. The second one finds the file and ends.
    script = f"test -e {file} && exit 0; echo line > {file}; sleep 1000"
    step = shell_step(script, seconds=1, verdicts=file)
    run_steps([step], setup, LONG)
    assert logged_results(setup) == [("step", "interrupted", None)]
    assert not is_complete([step], setup)
    run_steps([step], setup, LONG)
    assert logged_results(setup)[1:] == [("step", "ended", 0)]
    assert is_complete([step], setup)


@pytest.mark.parametrize("has_verdicts", [False, True])
def test_step_killed_without_progress_is_not_repeated(setup, has_verdicts):
    file = setup.out / "verdicts.jsonl" if has_verdicts else None
    step = shell_step("sleep 1000", seconds=0.2, verdicts=file)
    for _ in range(2):
        run_steps([step], setup, LONG, min_seconds=0)
    assert logged_results(setup) == [("step", "timed-out", None)]


def test_step_that_cannot_be_resumed_starts_only_if_its_whole_limit_is_left(setup):
    steps = [
        shell_step("exit 7", "not-resumable", 50),
        shell_step("exit 8", "resumable", 50, verdicts=setup.out / "v"),
    ]
    run_steps(steps, setup, 40)
    assert logged_results(setup) == [("resumable", "ended", 8)]
    run_steps(steps, setup, 60)
    assert logged_results(setup)[1:] == [("not-resumable", "ended", 7)]


def test_running_step_is_killed_at_the_time_limit_of_the_call(setup):
    file = setup.out / "verdicts.jsonl"
    step = shell_step(f"echo line >> {file}; sleep 1000", verdicts=file)
    run_steps([step], setup, 1, min_seconds=0)
    assert logged_results(setup) == [("step", "interrupted", None)]


def test_step_logged_as_again_runs_again(setup):
    steps = [shell_step("exit 3", "a"), shell_step("exit 4", "b")]
    run_steps(steps, setup, 3 * LONG)
    open_log(setup).add(StepResult("b", "again"))
    assert not is_complete(steps, setup)
    run_steps(steps, setup, 3 * LONG)
    assert logged_results(setup)[2:] == [("b", "again", None), ("b", "ended", 4)]


def test_step_with_a_skip_reason_is_logged_as_not_run_with_the_reason(setup):
    run_steps([shell_step("exit 1", skip_reason="no such tool")], setup, LONG)
    (result,) = open_log(setup).results()
    assert (result.status, result.tail) == ("not-run", "no such tool")


def test_result_of_a_step_is_logged_before_the_next_step_starts(setup):
    logged = []
    steps = [shell_step("exit 0", name) for name in "abc"]
    run_steps(
        steps,
        setup,
        4 * LONG,
        on_result=lambda result: logged.append((result.step, len(logged_results(setup)))),
    )
    assert logged == [("a", 1), ("b", 2), ("c", 3)]


def test_benchmark_figures_of_all_steps_are_saved_without_samples(setup):
    for name in ("one", "two"):
        file = setup.scratch / f"{name}.json"
        file.write_text(json.dumps(make_benchmark_run()))
        run_steps([shell_step("exit 0", name, benchmark=file)], setup, 2 * LONG)
    text = (setup.out / "benchmark.json").read_text()
    assert list(json.loads(text)) == ["one", "two"]
    assert '"data"' not in text


def test_benchmark_step_that_writes_no_file_is_logged_with_the_error(setup):
    run_steps([shell_step("exit 2", benchmark=setup.scratch / "none.json")], setup, 2 * LONG)
    (result,) = open_log(setup).results()
    assert result.tail.endswith("none.json cannot be read: No such file or directory")


def test_time_limits_of_all_steps_fit_into_three_calls(setup):
    steps = list_steps(setup)
    assert sum(step.seconds for step in steps) <= CALLS * CALL_SECONDS
    assert all(step.seconds <= CALL_SECONDS for step in steps)
    assert len({step.name for step in steps}) == len(steps)


def test_steps_write_at_most_eight_files_of_results(setup):
    files = {part for step in list_steps(setup) for part in step.command if str(setup.out) in part}
    assert len(files | {"benchmark.json", "steps.jsonl", "summary.md"}) <= 8


def test_steps_that_write_the_same_file_of_verdicts_have_different_tests(setup):
    # `--resume` would skip a test that already has a verdict from another step.
    shared = [step for step in list_steps(setup) if step.verdicts == setup.out / "checks.jsonl"]
    paths = [part for step in shared for part in step.command if part.startswith("spec_tests")]
    assert len(shared) == 3
    assert len(set(paths)) == len(paths)


def test_the_files_that_the_steps_run_exist(setup):
    root = Path(program.__file__).parents[2]
    parts = [part for step in list_steps(setup) for part in step.command]
    files = [part for part in parts if part.startswith(("spec_tests/", "bench/", "impl_tests/"))]
    assert files
    assert [file for file in files if not (root / file.partition("::")[0]).exists()] == []


def test_steps_that_need_cuda_are_skipped_on_the_simulator(setup):
    steps = list_steps(Setup(setup.out, setup.scratch, "sim", 2))
    reasons = {step.name: step.skip_reason for step in steps if step.skip_reason}
    assert reasons == dict.fromkeys(["bench-comm", "memcheck", "order", "nccl"], "needs CUDA")


def make_figures(*, reference, impl, share=0.8, reference_share=0.5):
    """Return ``benchmark.json`` with the given times and shares of a copy's bandwidth."""
    run = make_benchmark_run()
    groups = ("broadcast_coalesced 25x16MiB", "reduce_add_coalesced 25x16MiB")
    groups = (*groups, "broadcast_coalesced 4KiB", "DataParallel forward+backward blocks=100")
    libraries = {"reference": (reference, reference_share), "impl": (impl, share)}
    run["benchmarks"] = [
        {
            "group": group,
            "extra_info": {
                "library": library,
                "moved_bytes": share * time,
                "copy_bandwidth": 1.0,
                "payload_bytes": 4096 if "4KiB" in group else 400 * 2**20,
            },
            "stats": dict.fromkeys(("q1", "median", "q3"), time),
        }
        for group in groups
        for library, (time, share) in libraries.items()
    ]
    return {name: {"runs": [run]} for name in ("bench-comm", "bench-4", "bench-2")}


def verdicts_of(requirements):
    return {each.verdict for each in requirements}


def test_figures_equal_to_the_minimum_meet_the_requirements():
    requirements = check_requirements(make_figures(reference=1.5, impl=1.0))
    assert verdicts_of(requirements) == {"met"}
    assert not [each for each in requirements if "4KiB" in each.name and "share" in each.name]


@pytest.mark.parametrize(
    ("options", "not_met"),
    [
        ({"reference": 1.4, "impl": 1.0}, 4),
        ({"reference": 1.5, "impl": 1.0, "share": 0.69, "reference_share": 0.4}, 2),
        ({"reference": 1.5, "impl": 1.0, "reference_share": 0.6}, 2),
        ({"reference": 0.9, "impl": 1.0}, 5),
    ],
    ids=["time-ratio-1.4", "copy-share-0.69", "bandwidth-ratio-1.3", "slower-than-reference"],
)
def test_figures_below_the_minimum_do_not_meet_the_requirements(options, not_met):
    requirements = check_requirements(make_figures(**options))
    assert [each.verdict for each in requirements].count("not met") == not_met


def test_ratio_of_peak_memory_does_not_count_as_the_smallest_time_ratio():
    figures = make_figures(reference=1.5, impl=1.0)
    for each in figures["bench-4"]["runs"][0]["benchmarks"]:
        each["extra_info"]["peak_bytes"] = 2 if each["extra_info"]["library"] == "impl" else 1
    assert verdicts_of(check_requirements(figures)) == {"met"}


def test_requirements_without_figures_have_the_verdict_not_measured():
    assert verdicts_of(check_requirements({})) == {"not measured"}


def test_summary_lists_requirements_steps_failures_and_differences(setup):
    failures = [
        {"test": f"t{number}", "verdict": "fail", "reason": "this\nthat"} for number in range(50)
    ]
    (setup.out / "verdicts-2.jsonl").write_text(
        "".join(json.dumps(each) + "\n" for each in failures)
    )
    comparison = {"calls": 9, "differing": 1, "differences": [{"kind": "comm.scatter: result"}]}
    (setup.out / "differences.json").write_text(json.dumps(comparison))
    results = [
        StepResult("suite-2", "interrupted", None, 100.0),
        StepResult("suite-2", "ended", 1, 20.0),
        StepResult("nccl", "not-run", tail="needs CUDA"),
    ]
    page = format_summary(list_steps(setup), results, setup.out)
    assert "| suite-2 | impl, one GPU as two | ended | 1 | 120 |" in page
    assert "| suite-3 | impl, one GPU as three | left for the next call | - | 0 |" in page
    assert "| not-run: needs CUDA | - | 0 |" in page
    assert "## verdicts-2: 50 fail, 0 not-offered, 0 known, 0 pass, 0 not-run" in page
    assert "* `t0`: this\n" in page
    assert "* and 10 more" in page
    assert "9 calls on both, 1 differ." in page
    assert "* comm.scatter: result: 1" in page
    assert "| - | not measured |" in page


def test_exit_status_is_1_while_steps_are_left_and_0_afterwards(tmp_path, monkeypatch, capsys):
    steps = [shell_step("exit 0", "first", 1), shell_step("exit 0", "second", 90)]
    monkeypatch.setattr(program, "list_steps", lambda setup: steps)
    monkeypatch.setattr(signal, "signal", lambda *arguments: None)
    arguments = ["--out", str(tmp_path / "new" / "out"), "--minutes"]
    assert program.main([*arguments, "1"]) == 1
    assert "call it again" in capsys.readouterr().out
    assert program.main([*arguments, "2"]) == 0
    page = (tmp_path / "new" / "out" / "summary.md").read_text()
    assert page.count("| ended | 0 |") == 2
    assert program.main([*arguments, "1", "--again", "second"]) == 1
