"""One run of the suite, wherever it is started, by pytest's own means."""

import argparse
import importlib.util
import shlex
import sys
from pathlib import Path

import pytest

from spec_tests.cli.progress import Progress, VerdictCounter

SUITE = Path(__file__).resolve().parents[1]
SETTINGS = Path(__file__).with_name("run.ini")
NOT_OFFERED = 6


def run(options: argparse.Namespace) -> int:
    """Judge the target and return the exit status that `main.EXIT_STATUS` explains."""
    sys.path.insert(0, str(Path.cwd()))  # as `python -m pytest` does: the target may lie here
    if not _exists(options.target):
        print(f"no package {options.target} can be imported here")
        return int(pytest.ExitCode.USAGE_ERROR)
    tally = VerdictCounter() if options.verbose else Progress(repeat=_command(options))
    status = int(pytest.main(_arguments(options), plugins=[tally]))
    if status == pytest.ExitCode.TESTS_FAILED and tally.lacks_only():
        return NOT_OFFERED
    return status


def _exists(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def _arguments(options: argparse.Namespace) -> list[str]:
    """The command line of pytest: independent of the settings of the project around."""
    where = ["-c", str(SETTINGS), "--rootdir", str(SUITE.parent), "--confcutdir", str(SUITE)]
    where += ["-p", "spec_tests.harness.pytest_plugin.options", "-p", "no:cacheprovider"]
    where += ["--ignore", str(SUITE / "meta_tests")]  # they judge the suite
    prints = ["-v"] if options.verbose else ["-qq", "--no-header", "--no-summary"]
    return [str(SUITE), *where, *prints, *_passed_on(options), *_clauses(options), *options.pytest]


def _passed_on(options: argparse.Namespace) -> list[str]:
    values = {
        "--target": options.target,
        "--reference": options.reference,
        "--accelerator": options.accelerator,
        "--device-ids": options.device_ids,
        "--divergences": options.divergences,
        "--verdicts": options.verdicts,
    }
    found = [f"{name}={value}" for name, value in values.items() if value is not None]
    return found + [f"--target-map={each}" for each in options.target_map]


def _clauses(options: argparse.Namespace) -> list[str]:
    return [f"--clause={name}" for name in options.clause]


def _command(options: argparse.Namespace) -> str:
    """What repeats a failure, but for the clause."""
    repeated = [
        each for each in _passed_on(options) if not each.startswith(("--target=", "--verdicts"))
    ]
    return shlex.join(["parallel-conformance", "run", options.target, *repeated])
