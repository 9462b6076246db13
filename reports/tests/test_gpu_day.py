"""The checks on a GPU: time limits, resumed steps and saved results."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from reports.gpu_day import __main__ as program
from reports.gpu_day.process import TAIL_BYTES, run
from reports.gpu_day.requirements import check_requirements
from reports.gpu_day.runner import is_complete, open_log, run_steps
from reports.gpu_day.step_log import StepResult
from reports.gpu_day.steps import Setup, Step, list_steps
from reports.gpu_day.summary import format_summary
from reports.tests.samples import benchmark_run

#: Seconds for the steps in one call of nine minutes, and the number of calls.
CALL, CALLS = 9 * 60 - 8, 3
LONG = 1000.0


@pytest.fixture
def setup(tmp_path):
    """Empty folders for results and temporary files."""
    for name in ("out", "scratch"):
        tmp_path.joinpath(name).mkdir()
    return Setup(tmp_path / "out", tmp_path / "scratch", "cuda", 16)


@pytest.fixture
def pipe(tmp_path):
    """A named pipe and its read end; a read waits until every writer has ended."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    end = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(end, True)
    yield path, end
    os.close(end)


def shell(text, name="step", seconds=LONG, **fields):
    return Step(name, "purpose", ("sh", "-c", text), seconds, **fields)


def statuses(setup):
    return [(each.step, each.status, each.code) for each in open_log(setup).results()]


def test_process_that_hangs_is_killed_with_its_children(pipe, tmp_path):
    path, end = pipe
    hangs = f"(echo alive; sleep 1000) > {path} & cat; wait"
    completed = run(["sh", "-c", hangs], 3.0, {}, tmp_path / "log")
    assert completed.code is None
    assert [os.read(end, 100), os.read(end, 100)] == [b"alive\n", b""]


def test_children_are_killed_when_the_program_exits(pipe, tmp_path, monkeypatch):
    path, end = pipe
    wait = subprocess.Popen.wait

    def interrupted(process, seconds=None):
        if seconds is None:
            return wait(process)
        while not os.read(end, 100):  # empty until there is a writer
            time.sleep(0.01)
        raise SystemExit

    monkeypatch.setattr(subprocess.Popen, "wait", interrupted)
    with pytest.raises(SystemExit):
        run(["sh", "-c", f"(echo alive; sleep 1000) > {path} & wait"], LONG, {}, tmp_path / "log")
    assert os.read(end, 100) == b""


def test_end_of_the_output_is_kept(tmp_path):
    prints = "import sys; print('x' * 10**6, flush=True); print('\\udcff', 'end', file=sys.stderr)"
    completed = run(
        [sys.executable, "-c", prints],
        LONG,
        {"PYTHONIOENCODING": ":surrogateescape"},
        tmp_path / "log",
    )
    assert (completed.code, len(completed.tail)) == (0, TAIL_BYTES)
    assert completed.tail.endswith("end\n")


def test_steps_run_once_and_in_order(setup):
    todo = [
        shell(f"echo {name} >> {setup.scratch}/trace; exit {code}", name)
        for code, name in enumerate("ab")
    ]
    for _ in range(2):
        run_steps(todo, setup, 2 * LONG)
    assert (setup.scratch / "trace").read_text().split() == ["a", "b"]
    assert statuses(setup) == [("a", "ended", 0), ("b", "ended", 1)]
    assert is_complete(todo, setup)


def test_step_with_progress_is_resumed(setup):
    file = setup.out / "verdicts.jsonl"
    # The first call writes one line and hangs; the second finds it.
    text = f"test -e {file} && exit 0; echo line > {file}; sleep 1000"
    step = shell(text, seconds=1, verdicts=file)
    run_steps([step], setup, LONG)
    assert statuses(setup) == [("step", "interrupted", None)]
    assert not is_complete([step], setup)
    run_steps([step], setup, LONG)
    assert statuses(setup)[1:] == [("step", "ended", 0)]
    assert is_complete([step], setup)


@pytest.mark.parametrize("has_verdicts", [False, True])
def test_step_without_progress_is_not_repeated(setup, has_verdicts):
    file = setup.out / "verdicts.jsonl" if has_verdicts else None
    step = shell("sleep 1000", seconds=0.2, verdicts=file)
    for _ in range(2):
        run_steps([step], setup, LONG, least=0)
    assert statuses(setup) == [("step", "timed-out", None)]


def test_step_that_cannot_resume_needs_its_whole_limit(setup):
    whole, part = (
        shell("exit 7", "whole", 50),
        shell("exit 8", "part", 50, verdicts=setup.out / "v"),
    )
    run_steps([whole, part], setup, 40)
    assert statuses(setup) == [("part", "ended", 8)]
    run_steps([whole, part], setup, 60)
    assert statuses(setup)[1:] == [("whole", "ended", 7)]


def test_last_step_is_killed_at_the_limit_of_the_call(setup):
    file = setup.out / "verdicts.jsonl"
    step = shell(f"echo line >> {file}; sleep 1000", verdicts=file)
    run_steps([step], setup, 1, least=0)
    assert statuses(setup) == [("step", "interrupted", None)]


def test_requested_step_runs_again(setup):
    todo = [shell("exit 3", "a"), shell("exit 4", "b")]
    run_steps(todo, setup, 3 * LONG)
    open_log(setup).add(StepResult("b", "again"))
    assert not is_complete(todo, setup)
    run_steps(todo, setup, 3 * LONG)
    assert statuses(setup)[2:] == [("b", "again", None), ("b", "ended", 4)]


def test_step_that_cannot_run_is_recorded_with_the_reason(setup):
    run_steps([shell("exit 1", skip_reason="no such tool")], setup, LONG)
    (result,) = open_log(setup).results()
    assert (result.status, result.tail) == ("not-run", "no such tool")


def test_result_of_a_step_is_saved_before_the_next_starts(setup):
    seen = []
    todo = [shell("exit 0", name) for name in "abc"]
    run_steps(
        todo,
        setup,
        4 * LONG,
        after=lambda result: seen.append((result.step, len(statuses(setup)))),
    )
    assert seen == [("a", 1), ("b", 2), ("c", 3)]


def test_figures_are_saved_without_samples(setup):
    for name in ("one", "two"):
        file = setup.scratch / f"{name}.json"
        file.write_text(json.dumps(benchmark_run()))
        run_steps([shell("exit 0", name, benchmark=file)], setup, 2 * LONG)
    text = (setup.out / "benchmark.json").read_text()
    assert list(json.loads(text)) == ["one", "two"]
    assert '"data"' not in text


def test_benchmark_without_figures_is_recorded(setup):
    run_steps([shell("exit 2", benchmark=setup.scratch / "none.json")], setup, 2 * LONG)
    (result,) = open_log(setup).results()
    assert "no figures: FileNotFoundError" in result.tail


def test_limits_of_all_steps_fit_into_three_calls(setup):
    todo = list_steps(setup)
    assert sum(step.seconds for step in todo) <= CALLS * CALL
    assert all(step.seconds <= CALL for step in todo)
    assert len({step.name for step in todo}) == len(todo)


def test_results_are_at_most_eight_files(setup):
    named = {part for step in list_steps(setup) for part in step.command if str(setup.out) in part}
    assert len(named | {"benchmark.json", "steps.jsonl", "summary.md"}) <= 8


def test_steps_with_one_file_of_verdicts_share_no_test(setup):
    # `--resume` skips a test that has a verdict.
    shared = [step for step in list_steps(setup) if step.verdicts == setup.out / "checks.jsonl"]
    paths = [part for step in shared for part in step.command if part.startswith("spec_tests")]
    assert len(shared) == 3
    assert len(set(paths)) == len(paths)


def test_steps_for_cuda_are_not_run_on_the_simulator(setup):
    todo = list_steps(Setup(setup.out, setup.scratch, "sim", 2))
    reasons = {step.name: step.skip_reason for step in todo if step.skip_reason}
    assert reasons == dict.fromkeys(["bench-comm", "memcheck", "order", "nccl"], "needs CUDA")


def figures(*, reference, impl, share=0.8, reference_share=0.5):
    run = benchmark_run()
    groups = ("broadcast_coalesced 25x16MiB", "reduce_add_coalesced 25x16MiB")
    groups = (*groups, "broadcast_coalesced 4KiB", "DataParallel forward+backward blocks=100")
    libraries = {"reference": (reference, reference_share), "impl": (impl, share)}
    run["benchmarks"] = [
        {
            "group": group,
            "extra_info": {
                "library": library,
                "copy_share": share,
                "payload_bytes": 4096 if "4KiB" in group else 400 * 2**20,
            },
            "stats": dict.fromkeys(("q1", "median", "q3"), time),
        }
        for group in groups
        for library, (time, share) in libraries.items()
    ]
    return {name: {"runs": [run]} for name in ("bench-comm", "bench-4", "bench-2")}


def verdicts_of(found):
    return {each.verdict for each in found}


def test_figures_at_the_minimum_meet_the_requirements():
    found = check_requirements(figures(reference=1.5, impl=1.0))
    assert verdicts_of(found) == {"met"}
    assert not [each for each in found if "4KiB" in each.name and "share" in each.name]


@pytest.mark.parametrize(
    ("changed", "missed"),
    [
        ({"reference": 1.4, "impl": 1.0}, 4),
        ({"reference": 1.5, "impl": 1.0, "share": 0.69, "reference_share": 0.4}, 2),
        ({"reference": 1.5, "impl": 1.0, "reference_share": 0.6}, 2),
        ({"reference": 0.9, "impl": 1.0}, 5),
    ],
    ids=["times", "share", "bytes-a-second", "slower"],
)
def test_figures_below_the_minimum_do_not_meet_the_requirements(changed, missed):
    found = check_requirements(figures(**changed))
    assert [each.verdict for each in found].count("not met") == missed


def test_peak_memory_is_not_a_time():
    data = figures(reference=1.5, impl=1.0)
    for each in data["bench-4"]["runs"][0]["benchmarks"]:
        each["extra_info"]["peak_bytes"] = 2 if each["extra_info"]["library"] == "impl" else 1
    assert verdicts_of(check_requirements(data)) == {"met"}


def test_requirements_without_figures_are_not_measured():
    assert verdicts_of(check_requirements({})) == {"not measured"}


def test_page_lists_requirements_steps_and_failures(setup):
    fails = [
        {"test": f"t{number}", "verdict": "fail", "reason": "this\nthat"} for number in range(50)
    ]
    (setup.out / "verdicts-2.jsonl").write_text("".join(json.dumps(each) + "\n" for each in fails))
    found = {"calls": 9, "differing": 1, "differences": [{"kind": "comm.scatter: result"}]}
    (setup.out / "differences.json").write_text(json.dumps(found))
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


def test_exit_status_says_whether_steps_remain(tmp_path, monkeypatch, capsys):
    todo = [shell("exit 0", "first", 1), shell("exit 0", "second", 90)]
    monkeypatch.setattr(program, "list_steps", lambda setup: todo)
    monkeypatch.setattr(signal, "signal", lambda *arguments: None)
    arguments = ["--out", str(tmp_path / "new" / "out"), "--minutes"]
    assert program.main([*arguments, "1"]) == 1
    assert "call it again" in capsys.readouterr().out
    assert program.main([*arguments, "2"]) == 0
    page = (tmp_path / "new" / "out" / "summary.md").read_text()
    assert page.count("| ended | 0 |") == 2
    assert program.main([*arguments, "1", "--again", "second"]) == 1
