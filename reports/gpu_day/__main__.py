"""Run what is left to run on this machine's GPU, and write what came of it."""

import argparse
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

from .ledger import Entry
from .running import is_complete, ledger_of, run_steps
from .steps import Setup, steps
from .summary import summary

#: What starting, the last summary and the end of a killed process take, in seconds.
_MARGIN = 8.0


def main(arguments: list[str]) -> int:
    """Run the steps that are left; return 0 if none is left then, else 1."""
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        setup = Setup(options.out.resolve(), Path(scratch), options.accelerator, options.workers)
        todo = steps(setup)

        for name in options.again:
            ledger_of(setup).add(Entry(name, "again"))

        def after(entry: Entry) -> None:
            print(f"{time.strftime('%X')} {entry.step}: {entry.status}", flush=True)
            page = summary(todo, list(ledger_of(setup).entries()), setup.out)
            (setup.out / "summary.md").write_text(page, encoding="utf-8")

        run_steps(todo, setup, 60 * options.minutes - _MARGIN, after=after)
        complete = is_complete(todo, setup)
    print("all is done" if complete else "call it again to go on", flush=True)
    return int(not complete)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m reports.gpu_day", description=__doc__)
    add = parser.add_argument
    add("--out", type=Path, required=True, help="the folder of the results, and of those so far")
    add("--accelerator", default="cuda", help="cuda, or sim to try the command (default: cuda)")
    add("--minutes", type=float, default=9.0, help="when to end (default: 9)")
    cores = min(16, os.cpu_count() or 1)
    add("--workers", type=int, default=cores, help=f"processes for tests (default: {cores})")
    add("--again", action="append", default=[], metavar="STEP", help="do not take STEP for done")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
