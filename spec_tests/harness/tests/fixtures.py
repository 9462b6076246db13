"""Fixtures that run the suite, or a small suite with two clauses, in a new process."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spec_tests.harness.environment.fork_server import ForkServer
from spec_tests.harness.tests.small_suite import CLAUSES, CONFTEST, HEADER

ROOT = Path(__file__).resolve().parents[3]
HOME = Path.home()


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    """Yield a server that runs ``python -m MODULE`` in forked processes with torch imported."""
    server = ForkServer()
    yield server
    server.close()


@pytest.fixture
def run_command(
    fork_server: ForkServer, tmp_path: Path
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs ``parallel-conformance`` in the folder ``tmp_path``."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        return fork_server.run("spec_tests.cli.main", *arguments, cwd=tmp_path, env=env)

    return run


@pytest.fixture
def run_suite(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, fork_server: ForkServer
) -> Callable[..., pytest.RunResult]:
    """Return a function that runs the text of a test file as a suite with two clauses."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    # pytester changes HOME. The compiled simulator is in a cache below the real home folder.
    monkeypatch.setenv("HOME", str(HOME))
    pytester.makeconftest(CONFTEST)
    pytester.path.joinpath("clauses.toml").write_text(CLAUSES)

    def run(body: str, *options: str, target: str = "impl") -> pytest.RunResult:
        pytester.path.joinpath("test_it.py").write_text(HEADER + body)
        arguments = ["--accelerator=sim", f"--target={target}", str(pytester.path)]
        arguments += ["-p", "no:cacheprovider", *options]
        return fork_server.run_pytest(*arguments, cwd=pytester.path, env=os.environ)

    return run
