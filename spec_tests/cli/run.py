"""The command ``run``: run the suite with pytest from any folder."""

import argparse
import re
import signal
import sys
from pathlib import Path

import pytest

from spec_tests.cli.progress import Progress, RunMonitor
from spec_tests.failure import SUITE
from spec_tests.machine import clauses, processes
from spec_tests.machine.options import SETTINGS, SHARED

#: The exit status if missing names of the target are the only errors, and the one of
#: ``--require-decided``.
NOT_OFFERED, UNDECIDED = 6, 7
#: The number of tests that may end their process before the run ends.
MAX_RESTARTS = 1000


def main(options: argparse.Namespace) -> int:
    """Run the suite on the target and return the exit status; see `main.EXIT_STATUS`."""
    status = _run(options)
    if options.ends_process:
        sys.stdout.flush()
        processes.end_soon(status)
    return status


def _run(options: argparse.Namespace) -> int:
    # Like `python -m pytest`: the target may be a package in the current folder.
    sys.path.insert(0, str(Path.cwd()))
    monitor = RunMonitor() if options.verbose else Progress()
    for number in (signal.SIGINT, signal.SIGTERM):  # `timeout` and CI send the second one
        signal.signal(number, monitor.interrupt)
    status = int(pytest.main(_pytest_arguments(options), plugins=[monitor]))
    if status == pytest.ExitCode.NO_TESTS_COLLECTED:
        has_verdict = "each has a verdict in the file of --verdicts, or " if options.resume else ""
        print(
            f"no test was selected: {has_verdict}no test of the clauses has the options after --"
        )
    # pytest-xdist calls it an interrupt if -x or --maxfail ends a run. Signals end this process.
    if status == pytest.ExitCode.INTERRUPTED and monitor.has_failed():
        status = pytest.ExitCode.TESTS_FAILED
    if status == pytest.ExitCode.TESTS_FAILED and monitor.has_only_missing_names():
        return NOT_OFFERED
    not_decided = monitor.not_decided() if options.require_decided else []
    if status == pytest.ExitCode.OK and not_decided:
        print(f"--require-decided: {clauses.format_count(len(not_decided))} not decided")
        return UNDECIDED
    return status


def _pytest_arguments(options: argparse.Namespace) -> list[str]:
    """Return arguments that make pytest run the suite without settings of the current project."""
    settings = ["-c", str(SETTINGS), "--rootdir", str(SUITE.parent), "--confcutdir", str(SUITE)]
    # The hooks import torch, which loads the back end of an entry point. A worker that imports the
    # module of this back end first would load it twice.
    settings += ["-p", "spec_tests", "-p", "no:cacheprovider", "-p", "no:benchmark"]
    # Other styles of tracebacks parse all files in them: 15 s inside torch.compile. `Progress`
    # removes the sections of failures; before pytest 9.1, --no-summary removes that of clauses.
    short = ["-qq", "--no-header", "-rN", "--disable-warnings", "--tb=line"]
    short += ["-p", "no:faulthandler"]
    output = ["-v"] if options.verbose else short
    return [
        str(SUITE),
        *settings,
        *output,
        *_forwarded_options(options),
        *_worker_options(options),
        *options.pytest,
    ]


def _worker_options(options: argparse.Namespace) -> list[str]:
    """Return options for one worker process, which a test that hangs or crashes may end.

    Options of the user that choose workers, or that need a single process, take precedence.
    """
    given = any(
        re.match(r"-n|--(numprocesses|dist|pdb|trace)(=|$)", argument)
        for argument in options.pytest
    )
    return [*([] if given else ["-n1"]), f"--max-worker-restart={MAX_RESTARTS}"]


def _forwarded_options(options: argparse.Namespace) -> list[str]:
    """Return the options of pytest for those of the command."""
    arguments = [f"--target={options.target}"]
    for name in SHARED:
        value = getattr(options, name[2:].replace("-", "_"))
        values = value if isinstance(value, list) else [value]
        given = [each for each in values if each not in (None, False)]
        arguments += [name if each is True else f"{name}={each}" for each in given]
    return arguments + [f"-p{module}" for module in options.modules]
