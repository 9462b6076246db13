"""The command ``run``: run the suite with pytest from any folder."""

import argparse
import os
import shlex
import sys
from pathlib import Path

import pytest

from spec_tests.cli.progress import Progress, VerdictCollector

SUITE = Path(__file__).resolve().parents[1]
SETTINGS = Path(__file__).with_name("run.ini")
#: The exit status if missing names of the target are the only errors.
NOT_OFFERED = 6


def run(options: argparse.Namespace) -> int:
    """Run the suite on the target and return the exit status; see `main.EXIT_STATUS`."""
    # Hypothesis would save failing examples in the current folder.
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    os.environ.setdefault(
        "HYPOTHESIS_STORAGE_DIRECTORY", str(cache / "torch-parallel-spec" / "hypothesis")
    )
    # Like `python -m pytest`: the target may be a package in the current folder.
    sys.path.insert(0, str(Path.cwd()))
    counter = (
        VerdictCollector()
        if options.verbose
        else Progress(repeat_command=_format_repeat_command(options))
    )
    status = int(pytest.main(_pytest_arguments(options), plugins=[counter]))
    if status == pytest.ExitCode.TESTS_FAILED and counter.has_only_missing_names():
        return NOT_OFFERED
    return status


def _pytest_arguments(options: argparse.Namespace) -> list[str]:
    """Return arguments that make pytest run the suite without settings of the current project."""
    settings = ["-c", str(SETTINGS), "--rootdir", str(SUITE.parent), "--confcutdir", str(SUITE)]
    settings += ["-p", "spec_tests", "-p", "no:cacheprovider", "-p", "no:benchmark"]
    output = ["-v"] if options.verbose else ["-qq", "--no-header", "--no-summary"]
    return [
        str(SUITE),
        *settings,
        *output,
        *_forwarded_options(options),
        *_clause_options(options),
        *options.pytest,
    ]


def _forwarded_options(options: argparse.Namespace) -> list[str]:
    values = {
        "--target": options.target,
        "--reference": options.reference,
        "--accelerator": options.accelerator,
        "--device-ids": options.device_ids,
        "--divergences": options.divergences,
        "--verdicts": options.verdicts,
    }
    found = [f"{name}={value}" for name, value in values.items() if value is not None]
    found += [f"--target-map={each}" for each in options.target_map]
    return found + [f"-p{each}" for each in options.modules]


def _clause_options(options: argparse.Namespace) -> list[str]:
    return [f"--clause={name}" for name in options.clause]


def _format_repeat_command(options: argparse.Namespace) -> str:
    """Return the command that repeats the run, without ``--clause``."""
    repeated = [
        each
        for each in _forwarded_options(options)
        if not each.startswith(("--target=", "--verdicts"))
    ]
    repeated += ["--", *options.pytest] if options.pytest else []
    return shlex.join(["parallel-conformance", "run", options.target, *repeated])
