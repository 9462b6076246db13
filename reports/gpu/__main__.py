"""Check impl on this machine's GPU within a time limit, the most informative step first.

Each step is one process. At its time limit the process and its children are killed. Tests that
ended before have their verdicts; the others are not-run.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
#: The time limit of all steps together.
SECONDS = 528
#: The number of lines at the end of a step's output that are printed.
PRINTED_LINES = 25
#: One GPU as two and as three devices.
TWO, THREE = "0,0", "0,0,0"
#: The benchmarked models of `bench/real_models.py`: those that need no package but transformers
#: and torchvision.
MODELS = "ResNet or ViT or GPT or LSTM"
#: The plug-ins that pytest loads. Other plug-ins on the machine are not loaded.
_PLUGINS = (
    "xdist.plugin",
    "pytest_timeout",
    "_hypothesis_pytestplugin",
    "pytest_benchmark.plugin",
)


class Step(NamedTuple):
    """A step: its name, its time limit in seconds, and its command."""

    name: str
    seconds: float
    command: Sequence[str]


def list_steps(out: Path, accelerator: str, workers: int) -> Iterator[Step]:
    """Yield the steps, in order. Their time limits add up to less than nine minutes."""

    def tests(devices: str, *arguments: str) -> list[str]:
        plugins = [part for name in _PLUGINS for part in ("-p", name)]
        head = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider"]
        # The method "thread" also ends a test that hangs in C++, by ending its process.
        limits = ["--timeout=60", "--timeout-method=thread"]
        where = ["--accelerator", accelerator, "--device-ids", devices]
        return [*head, *plugins, *limits, *where, *arguments]

    def verdicts(name: str, *arguments: str) -> list[str]:
        file = ["--resume", "--verdicts", str(out / f"{name}.jsonl")]
        few = ["--hypothesis-profile", "few", "-n", str(workers)]
        return tests(THREE, *arguments, *few, *file)

    def benchmarks(name: str, *arguments: str) -> list[str]:
        file = f"--benchmark-json={out / name}.json"
        return tests(TWO, "--benchmark-max-time=0.3", file, *arguments)

    yield Step("suite", 200, verdicts("impl", "spec_tests"))
    yield Step("transfers", 50, benchmarks("transfers", "bench/bench_comm.py"))
    yield Step(
        "models", 80, benchmarks("models", "bench/bench_models.py::bench_devices", "-k", MODELS)
    )
    yield Step("reference", 120, verdicts("reference", "spec_tests", "--target=torch.nn.parallel"))


def run_steps(steps: Sequence[Step], out: Path, seconds: float) -> int:
    """Run the steps in order and return the number of those that failed or did not run.

    Args:
        steps: The steps.
        out: The folder of the results. Each step has a line in its file ``steps.jsonl``, with the
            exit status, or null if the step was killed or not started. ``log.txt`` has the output.
        seconds: The time limit of all steps together.
    """
    deadline, failed = time.monotonic() + seconds, 0
    for step in steps:
        start = time.monotonic()
        code = _run(step, min(step.seconds, deadline - start), out / "log.txt")
        failed += code != 0
        line = {"step": step.name, "code": code, "seconds": round(time.monotonic() - start, 1)}
        print(json.dumps(line), flush=True)
        with (out / "steps.jsonl").open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps(line)}\n")
    return failed


def _run(step: Step, seconds: float, log: Path) -> int | None:
    """Run a step, print the end of its output, and return its exit status; None if killed."""
    print(f"== {step.name}", flush=True)
    if seconds <= 0:
        return None
    with log.open("a+b") as file:
        begin = file.seek(0, os.SEEK_END)
        process = subprocess.Popen(
            step.command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            start_new_session=True,
        )
        try:
            code: int | None = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        file.seek(begin)
        lines = file.read().decode(errors="replace").splitlines()
    print(*lines[-PRINTED_LINES:], sep="\n", flush=True)
    return code


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the steps; return 1 if one failed or did not run."""
    parser = argparse.ArgumentParser(prog="python -m reports.gpu", description=__doc__)
    add = parser.add_argument
    add("--out", type=Path, required=True, help="the folder for the results")
    add("--accelerator", default="cuda", help="cuda, or sim to try the command (default: cuda)")
    add("--step", action="append", help="run only this step; repeatable")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    steps = list_steps(options.out.resolve(), options.accelerator, min(14, os.cpu_count() or 1))
    chosen = [step for step in steps if not options.step or step.name in options.step]
    return int(run_steps(chosen, options.out, SECONDS) > 0)


if __name__ == "__main__":
    sys.exit(main())
