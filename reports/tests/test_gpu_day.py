"""The command for a day on a GPU: limits of time, what is gone on with, what is kept."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from reports.gpu_day import __main__ as program
from reports.gpu_day.ledger import Entry
from reports.gpu_day.process import LONGEST_TAIL, run
from reports.gpu_day.rows import rows
from reports.gpu_day.running import is_complete, ledger_of, run_steps
from reports.gpu_day.steps import Setup, Step, steps
from reports.gpu_day.summary import summary
from reports.tests.samples import benchmark_run

#: What a call of the tool that lends the machine leaves for the steps, and how often it is called.
CALL, CALLS = 9 * 60 - 8, 3
LONG = 1000.0


@pytest.fixture
def setup(tmp_path):
    """Empty folders for the results and for the rest."""
    for name in ("out", "scratch"):
        tmp_path.joinpath(name).mkdir()
    return Setup(tmp_path / "out", tmp_path / "scratch", "cuda", 16)


@pytest.fixture
def pipe(tmp_path):
    """A named pipe and its end to read, at which reading waits until no writer lives."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    end = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(end, True)
    yield path, end
    os.close(end)


def shell(text, name="step", seconds=LONG, **rest):
    return Step(name, "tells", ("sh", "-c", text), seconds, **rest)


def statuses(setup):
    return [(entry.step, entry.status, entry.code) for entry in ledger_of(setup).entries()]


def test_what_hangs_is_killed_with_its_children(pipe, tmp_path):
    path, end = pipe
    hangs = f"(echo alive; sleep 1000) > {path} & cat; wait"
    ended = run(["sh", "-c", hangs], 3.0, {}, tmp_path / "log")
    assert ended.code is None
    assert [os.read(end, 100), os.read(end, 100)] == [b"alive\n", b""]


def test_children_are_killed_when_the_program_is_asked_to_end(pipe, tmp_path, monkeypatch):
    path, end = pipe
    wait = subprocess.Popen.wait

    def interrupted(process, seconds=None):
        if seconds is None:
            return wait(process)
        while not os.read(end, 100):  # before there is a writer, there is nothing
            time.sleep(0.01)
        raise SystemExit

    monkeypatch.setattr(subprocess.Popen, "wait", interrupted)
    with pytest.raises(SystemExit):
        run(["sh", "-c", f"(echo alive; sleep 1000) > {path} & wait"], LONG, {}, tmp_path / "log")
    assert os.read(end, 100) == b""


def test_the_end_of_what_was_printed_is_kept(tmp_path):
    prints = "import sys; print('x' * 10**6, flush=True); print('\\udcff', 'end', file=sys.stderr)"
    ended = run(
        [sys.executable, "-c", prints],
        LONG,
        {"PYTHONIOENCODING": ":surrogateescape"},
        tmp_path / "log",
    )
    assert (ended.code, len(ended.tail)) == (0, LONGEST_TAIL)
    assert ended.tail.endswith("end\n")


def test_steps_run_in_order_and_once(setup):
    todo = [
        shell(f"echo {name} >> {setup.scratch}/trace; exit {code}", name)
        for code, name in enumerate("ab")
    ]
    for _ in range(2):
        run_steps(todo, setup, 2 * LONG)
    assert (setup.scratch / "trace").read_text().split() == ["a", "b"]
    assert statuses(setup) == [("a", "ended", 0), ("b", "ended", 1)]
    assert is_complete(todo, setup)


def test_a_step_that_made_headway_is_gone_on_with(setup):
    file = setup.out / "verdicts.jsonl"
    # The first call writes one line and hangs; the second finds it.
    text = f"test -e {file} && exit 0; echo line > {file}; sleep 1000"
    step = shell(text, seconds=1, verdicts=file)
    run_steps([step], setup, LONG)
    assert statuses(setup) == [("step", "cut", None)]
    assert not is_complete([step], setup)
    run_steps([step], setup, LONG)
    assert statuses(setup)[1:] == [("step", "ended", 0)]
    assert is_complete([step], setup)


@pytest.mark.parametrize("has_verdicts", [False, True])
def test_a_step_that_made_no_headway_is_given_up(setup, has_verdicts):
    file = setup.out / "verdicts.jsonl" if has_verdicts else None
    step = shell("sleep 1000", seconds=0.2, verdicts=file)
    for _ in range(2):
        run_steps([step], setup, LONG, least=0)
    assert statuses(setup) == [("step", "over", None)]


def test_a_step_is_not_begun_without_time_for_it(setup):
    whole, part = (
        shell("exit 7", "whole", 50),
        shell("exit 8", "part", 50, verdicts=setup.out / "v"),
    )
    run_steps([whole, part], setup, 40)
    assert statuses(setup) == [("part", "ended", 8)]
    run_steps([whole, part], setup, 60)
    assert statuses(setup)[1:] == [("whole", "ended", 7)]


def test_the_last_step_ends_with_the_time_of_the_call(setup):
    file = setup.out / "verdicts.jsonl"
    step = shell(f"echo line >> {file}; sleep 1000", verdicts=file)
    run_steps([step], setup, 1, least=0)
    assert statuses(setup) == [("step", "cut", None)]


def test_a_step_that_is_asked_for_again_runs_again(setup):
    todo = [shell("exit 3", "a"), shell("exit 4", "b")]
    run_steps(todo, setup, 3 * LONG)
    ledger_of(setup).add(Entry("b", "again"))
    assert not is_complete(todo, setup)
    run_steps(todo, setup, 3 * LONG)
    assert statuses(setup)[2:] == [("b", "again", None), ("b", "ended", 4)]


def test_what_cannot_run_here_is_not_run_for_a_reason(setup):
    run_steps([shell("exit 1", absent="no such tool")], setup, LONG)
    (entry,) = ledger_of(setup).entries()
    assert (entry.status, entry.tail) == ("not-run", "no such tool")


def test_results_of_a_step_are_there_before_the_next_begins(setup):
    seen = []
    todo = [shell("exit 0", name) for name in "abc"]
    run_steps(
        todo, setup, 4 * LONG, after=lambda entry: seen.append((entry.step, len(statuses(setup))))
    )
    assert seen == [("a", 1), ("b", 2), ("c", 3)]


def test_figures_are_kept_without_samples(setup):
    for name in ("one", "two"):
        file = setup.scratch / f"{name}.json"
        file.write_text(json.dumps(benchmark_run()))
        run_steps([shell("exit 0", name, benchmark=file)], setup, 2 * LONG)
    text = (setup.out / "benchmark.json").read_text()
    assert list(json.loads(text)) == ["one", "two"]
    assert '"data"' not in text


def test_a_benchmark_without_figures_says_so(setup):
    run_steps([shell("exit 2", benchmark=setup.scratch / "none.json")], setup, 2 * LONG)
    (entry,) = ledger_of(setup).entries()
    assert "no figures: FileNotFoundError" in entry.tail


def test_the_steps_are_few_enough_for_the_time_there_is(setup):
    todo = steps(setup)
    assert sum(step.seconds for step in todo) <= CALLS * CALL
    assert all(step.seconds <= CALL for step in todo)
    names = [step.name for step in todo]
    assert names[:5] == ["machine", "suite-2", "suite-3", "stand-ins", "reference"]
    assert len(set(names)) == len(names)


def test_the_results_are_at_most_eight_files(setup):
    named = {part for step in steps(setup) for part in step.command if str(setup.out) in part}
    assert len(named | {"benchmark.json", "steps.jsonl", "summary.md"}) <= 8


def test_steps_that_share_a_file_of_verdicts_share_no_test(setup):
    # `--resume` takes a test that has a verdict for done.
    shared = [step for step in steps(setup) if step.verdicts == setup.out / "checks.jsonl"]
    paths = [part for step in shared for part in step.command if part.startswith("spec_tests")]
    assert len(shared) == 3
    assert len(set(paths)) == len(paths)


def test_the_simulator_is_no_card(setup):
    todo = steps(Setup(setup.out, setup.scratch, "sim", 2))
    absent = {step.name: step.absent for step in todo if step.absent}
    assert absent == dict.fromkeys(["bench-comm", "memcheck", "order", "nccl"], "needs CUDA")


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
    return {row.verdict for row in found}


def test_rows_that_are_reached_are_met():
    found = rows(figures(reference=1.5, impl=1.0))
    assert verdicts_of(found) == {"met"}
    assert len(found) == 2 * 3 + 2 + 1
    assert not [
        row for row in found if "4KiB" in row.name.partition(":")[0] and "share" in row.name
    ]


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
def test_rows_that_are_missed_are_not_met(changed, missed):
    found = rows(figures(**changed))
    assert [row.verdict for row in found].count("not met") == missed


def test_memory_is_not_slow():
    data = figures(reference=1.5, impl=1.0)
    for each in data["bench-4"]["runs"][0]["benchmarks"]:
        each["extra_info"]["peak_bytes"] = 2 if each["extra_info"]["library"] == "impl" else 1
    assert verdicts_of(rows(data)) == {"met"}


def test_rows_without_figures_are_not_measured():
    assert verdicts_of(rows({})) == {"not measured"}


def test_the_page_lists_rows_steps_and_failures(setup):
    fails = [
        {"test": f"t{number}", "verdict": "fail", "reason": "this\nthat"} for number in range(50)
    ]
    (setup.out / "verdicts-2.jsonl").write_text("".join(json.dumps(each) + "\n" for each in fails))
    found = {"calls": 9, "differing": 1, "differences": [{"kind": "comm.scatter: result"}]}
    (setup.out / "differences.json").write_text(json.dumps(found))
    entries = [
        Entry("suite-2", "cut", None, 100.0),
        Entry("suite-2", "ended", 1, 20.0),
        Entry("nccl", "not-run", tail="needs CUDA"),
    ]
    page = summary(steps(setup), entries, setup.out)
    assert "| suite-2 | impl, one card for two | ended | 1 | 120 |" in page
    assert "| suite-3 | impl, one card for three | left for the next call | - | 0 |" in page
    assert "| not-run: needs CUDA | - | 0 |" in page
    assert "## verdicts-2: 50 fail, 0 not-offered, 0 known, 0 pass, 0 not-run" in page
    assert "* `t0`: this\n" in page
    assert "* and 10 more" in page
    assert "9 calls on both, 1 differ." in page
    assert "* comm.scatter: result: 1" in page
    assert "| - | not measured |" in page


def test_the_program_tells_whether_anything_is_left(tmp_path, monkeypatch, capsys):
    todo = [shell("exit 0", "first", 1), shell("exit 0", "second", 90)]
    monkeypatch.setattr(program, "steps", lambda setup: todo)
    monkeypatch.setattr(signal, "signal", lambda *arguments: None)
    arguments = ["--out", str(tmp_path / "new" / "out"), "--minutes"]
    assert program.main([*arguments, "1"]) == 1
    assert "call it again" in capsys.readouterr().out
    assert program.main([*arguments, "2"]) == 0
    page = (tmp_path / "new" / "out" / "summary.md").read_text()
    assert page.count("| ended | 0 |") == 2
    assert program.main([*arguments, "1", "--again", "second"]) == 1
