"""Whole runs of the suite, and of a suite of two clauses, as fixtures."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spec_tests.meta_tests.fork_server import ForkServer
from spec_tests.meta_tests.small_suite import CLAUSES, CONFTEST, HEADER

ROOT = Path(__file__).resolve().parents[2]
HOME = Path.home()


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    """Starts ``python -m MODULE`` in a process of its own, which need not import torch first."""
    found = ForkServer()
    yield found
    found.close()


@pytest.fixture
def suite(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, fork_server: ForkServer
) -> Callable[..., pytest.RunResult]:
    """Return a function that runs a body of tests as a suite of two clauses."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    # pytester moves the home; the simulator is built once, in the real one's cache.
    monkeypatch.setenv("HOME", str(HOME))
    pytester.makeconftest(CONFTEST)
    pytester.path.joinpath("clauses.toml").write_text(CLAUSES)

    def run(body: str, *options: str, target: str = "impl") -> pytest.RunResult:
        pytester.path.joinpath("test_it.py").write_text(HEADER + body)
        arguments = ["--accelerator=sim", f"--target={target}", str(pytester.path)]
        arguments += ["-p", "no:cacheprovider", *options]
        return fork_server.run_pytest(*arguments, cwd=pytester.path, env=os.environ)

    return run
