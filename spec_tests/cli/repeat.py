"""Runs the programs that a run writes for its failures."""

import os
import sys
from pathlib import Path

import pytest

from spec_tests.cli.run import SETTINGS
from spec_tests.machine import guards


def run(test: str, *options: str) -> None:
    """Run a test of a file, which is outside the suite, and exit with the status of pytest.

    Args:
        test: The file, or the file and the name of the test.
        options: Options of pytest and of the suite, such as ``--target=NAME``.
    """
    # The target may be a package in the current folder.
    sys.path.insert(0, os.getcwd())
    folder = Path(test.partition("::")[0]).resolve().parent
    settings = ["-c", str(SETTINGS), f"--rootdir={folder}", f"--confcutdir={folder}"]
    plugins = ["-p", "spec_tests", "-p", "spec_tests.conftest", "-p", "no:cacheprovider"]
    output = ["-q", "--no-header", "--disable-warnings"]
    status = pytest.main([test, *settings, *plugins, *output, *options])
    guards.end_soon(status)
    sys.exit(status)
