"""Run the steps that are not done yet on this machine's GPU, and write their results."""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from .steps import Setup, Step, list_steps

ROOT = Path(__file__).resolve().parents[2]
#: The seconds of ``--minutes`` that are kept for starting, and for killing a process.
RESERVED_SECONDS = 8
#: The seconds that must be left to start a step that a later call can resume.
LEAST_SECONDS = 20
#: The lines at the end of a step's output that are printed.
PRINTED_LINES = 25


def main(arguments: list[str]) -> int:
    """Run the steps that are not done yet; return 0 if all steps are done afterwards, else 1."""
    options = _build_parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    options.out.mkdir(parents=True, exist_ok=True)
    steps = list_steps(Setup(options.out.resolve(), options.accelerator, options.workers))
    seconds = 60 * options.minutes - RESERVED_SECONDS
    complete = run_steps(steps, options.out, seconds, options.again)
    print("all steps are done" if complete else "call it again to resume", flush=True)
    return int(not complete)


def run_steps(
    steps: Sequence[Step], out: Path, seconds: float, again: Collection[str] = ()
) -> bool:
    """Run the steps that are not done yet, in order, and return whether all are done then.

    Args:
        steps: All steps.
        out: The folder of the results. Its file ``steps.jsonl`` has a line for each step that is
            done: the exit status (None if it was killed) and the seconds, or why it is not-run.
        seconds: The time limit of this call.
        again: The names of steps to run although they are done.
    """
    deadline, log = time.monotonic() + seconds, out / "steps.jsonl"
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    done = {json.loads(line)["step"] for line in lines} - {*again}
    for step in steps:
        if step.name in done:
            continue
        result = _run_within(step, out, deadline - time.monotonic())
        if result is not None:
            done.add(step.name)
            line = json.dumps({"step": step.name, **result})
            print(line, flush=True)
            with log.open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")
    return {step.name for step in steps} <= done


def _run_within(step: Step, out: Path, seconds_left: float) -> dict[str, object] | None:
    """Run a step if the time is enough.

    A step that a later call cannot resume is started only if its whole time limit is left.

    Returns:
        The result; None if a later call must start or resume the step.
    """
    if step.skip_reason is not None:
        return {"not-run": step.skip_reason}
    if seconds_left < (LEAST_SECONDS if step.verdicts else step.seconds):
        return None
    start, size = time.monotonic(), _size(step.verdicts)
    code = _run(step, min(seconds_left, step.seconds), out / f"{step.name}.log")
    is_cut = step.verdicts is not None and seconds_left < step.seconds
    if code is None and (is_cut or _size(step.verdicts) > size):
        return None
    return {"code": code, "seconds": round(time.monotonic() - start, 1)}


def _size(file: Path | None) -> int:
    return file.stat().st_size if file is not None and file.exists() else 0


def _run(step: Step, seconds: float, log: Path) -> int | None:
    """Run a step and print the end of its output.

    Args:
        step: The step.
        seconds: The time after which the process and its children are killed.
        log: The file to which the output is appended.

    Returns:
        The exit status; None if the process was killed.
    """
    print(f"== {step.name}: {step.purpose}", flush=True)
    with log.open("ab") as file:
        process = subprocess.Popen(
            step.command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env={**os.environ, **step.environment},
            start_new_session=True,
        )
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            # Until `wait` returns, no other process group has this id.
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
            print(*lines[-PRINTED_LINES:], sep="\n", flush=True)


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m reports.gpu_day", description=__doc__)
    add = parser.add_argument
    add(
        "--out",
        type=Path,
        required=True,
        help="the folder for the results; may have those of earlier runs",
    )
    add("--accelerator", default="cuda", help="cuda, or sim to try the command (default: cuda)")
    add("--minutes", type=float, default=9.0, help="the time limit of this run (default: 9)")
    cores = min(16, os.cpu_count() or 1)
    add("--workers", type=int, default=cores, help=f"processes that run tests (default: {cores})")
    add(
        "--again",
        action="append",
        default=[],
        metavar="STEP",
        help="run STEP again although it is done",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
