"""Fixtures that write packages, and run commands, pytest or a small suite.

They run in the process of the test or in a new one.
"""

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spec_tests.cli.main import main
from spec_tests.machine import probes
from spec_tests.machine.devices import BACK_ENDS
from spec_tests.machine.processes import server
from spec_tests.machine.tests.small_suite import CLAUSES, CONFTEST, HEADER

ROOT = Path(__file__).resolve().parents[3]
HOME = Path.home()
#: Runs a command with the given arguments, and returns its exit status and output.
Command = Callable[..., subprocess.CompletedProcess[str]]


def start_python(folder: Path, *arguments: object) -> subprocess.Popen[str]:
    """Start ``python *arguments`` in a folder and a new session, with the suite on its path."""
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


@pytest.fixture
def run_module(tmp_path: Path) -> Command:
    """Return a function that runs ``python -m MODULE ...`` in the folder ``tmp_path``."""

    def run(*command: str, folder: Path = tmp_path) -> subprocess.CompletedProcess[str]:
        # pytester changes HOME. The compiled simulator is in a cache below the real home folder.
        env = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(HOME)}
        return server().run(*command, cwd=folder, env=env)

    return run


@pytest.fixture
def run_command(run_module: Command) -> Command:
    """Return a function that runs ``parallel-conformance`` in the folder ``tmp_path``."""
    return lambda *arguments: run_module("spec_tests.cli", *arguments)


@pytest.fixture
def run_command_here(
    _restored: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Callable[..., tuple[int, str]]:
    """Return a function that runs ``parallel-conformance`` in this process without workers.

    It returns exit status and output. The current folder is ``tmp_path``.
    """
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str]:
        separator = [] if "--" in arguments else ["--"]
        status = main([*arguments, *separator, "-n0"])
        return status, "".join(capfd.readouterr())

    return run


@pytest.fixture
def write_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that writes a package to ``tmp_path``, given its name and modules."""

    def write(name: str, **modules: str) -> None:
        folder = tmp_path / name
        folder.mkdir()
        for module, text in {"__init__": "", **modules}.items():
            (folder / f"{module}.py").write_text(text)
            full = name if module == "__init__" else f"{name}.{module}"
            monkeypatch.delitem(sys.modules, full, raising=False)  # of another test

    return write


@pytest.fixture
def run_pytest(pytester: pytest.Pytester, run_module: Command) -> Callable[..., pytest.RunResult]:
    """Return a function that runs pytest in pytester's folder, and returns what pytester does."""

    def run(*options: str) -> pytest.RunResult:
        command = ["pytest", "-p", "no:cacheprovider", *options]
        done = run_module(*command, folder=pytester.path)
        lines = done.stdout.splitlines(), done.stderr.splitlines()
        return pytest.RunResult(done.returncode, *lines, duration=0)

    return run


@pytest.fixture
def write_suite(pytester: pytest.Pytester) -> Callable[..., list[str]]:
    """Return a function that writes a suite with two clauses, and returns options to run it."""
    pytester.makeconftest(CONFTEST)
    pytester.path.joinpath("clauses.toml").write_text(CLAUSES)
    folder = str(pytester.path)

    def write(body: str, target: str = "impl") -> list[str]:
        pytester.path.joinpath("test_it.py").write_text(HEADER + body)
        return [folder, f"--suite={folder}", "--accelerator=sim", f"--target={target}"]

    return write


@pytest.fixture
def _restored(sim: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Restore at the end of a test what a run of the suite sets for its process."""
    monkeypatch.setattr(probes, "say", probes.say)
    monkeypatch.setenv(BACK_ENDS, os.environ.get(BACK_ENDS, ""))
    monkeypatch.setattr(gc, "freeze", lambda: None)
    monkeypatch.setattr(sys, "path", [*sys.path])
    numbers = (signal.SIGINT, signal.SIGTERM)
    handlers = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, handlers, strict=True):
        signal.signal(number, handler)


@pytest.fixture
def run_suite(
    _restored: None,
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    write_suite: Callable[..., list[str]],
) -> Callable[..., pytest.RunResult]:
    """Return a function that runs the text of a test file as a suite, in this process."""
    monkeypatch.setenv("HOME", str(HOME))  # The compiled simulator is below it.

    def run(body: str, *options: str, **target: str) -> pytest.RunResult:
        arguments = write_suite(body, **target)
        return pytester.runpytest_inprocess(*arguments, "-p", "no:cacheprovider", *options)

    return run


@pytest.fixture
def run_suite_in_new_process(
    run_pytest: Callable[..., pytest.RunResult], write_suite: Callable[..., list[str]]
) -> Callable[..., pytest.RunResult]:
    """Return a function that runs the text of a test file as a suite, in a new process."""
    return lambda body, *options, **target: run_pytest(*write_suite(body, **target), *options)
