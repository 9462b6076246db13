"""Run the steps that are not done yet on this machine's GPU, and write their results."""

import argparse
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

from .runner import is_complete, open_log, run_steps
from .step_log import StepResult
from .steps import Setup, list_steps
from .summary import format_summary

#: Seconds of ``--minutes`` that are kept for starting, killing a process and writing the summary.
_RESERVED_SECONDS = 8.0


def main(arguments: list[str]) -> int:
    """Run the steps that are not done yet; return 0 if all steps are done afterwards, else 1."""
    options = _build_parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        setup = Setup(options.out.resolve(), Path(scratch), options.accelerator, options.workers)
        steps = list_steps(setup)
        for name in options.again:
            open_log(setup).add(StepResult(name, "again"))

        def report_result(result: StepResult) -> None:
            print(f"{time.strftime('%X')} {result.step}: {result.status}", flush=True)
            page = format_summary(steps, list(open_log(setup).results()), setup.out)
            (setup.out / "summary.md").write_text(page, encoding="utf-8")

        run_steps(steps, setup, 60 * options.minutes - _RESERVED_SECONDS, on_result=report_result)
        complete = is_complete(steps, setup)
    print("all steps are done" if complete else "call it again to resume", flush=True)
    return int(not complete)


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
