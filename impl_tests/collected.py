"""A pytest session that collects tests once; jobs then run them in forked processes.

The process that collects does not use the accelerator, so that it may fork.
"""

import gc
import os
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol

from spec_tests.harness.conformance import clauses

__all__ = ["CHAPTERS", "ROOT", "call_with_session", "run_test"]

ROOT = Path(__file__).resolve().parents[1]
#: The folders of the chapters.
CHAPTERS = tuple(f"spec_tests/{name}" for name in clauses.CHAPTERS)


class _Plugin:
    """A pytest plugin that calls a function in place of running the collected tests."""

    def __init__(self, function: Callable[[pytest.Session], None]) -> None:
        self._function = function
        self._folders: dict[Path, pytest.Collector] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_directory(
        self, path: Path
    ) -> Generator[None, pytest.Collector, pytest.Collector]:
        """Return the same node for a folder at each collection, so its fixtures stay valid."""
        node = yield
        return self._folders.setdefault(path, node)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        gc.freeze()  # pytest collects garbage after each test.
        self._function(session)
        return True


def call_with_session(function: Callable[[pytest.Session], None], *options: str) -> int:
    """Collect tests in this process and call ``function`` with the session.

    Args:
        function: A function of the session.
        options: Options and files for pytest.

    Returns:
        The exit status of pytest.
    """
    os.chdir(ROOT)
    arguments = ["-qq", "-s", "--tb=line", "--accelerator=sim"]
    # Each fork enables the accelerator and imports its own target.
    absent = ("cacheprovider", "benchmark", "spec_tests.harness.pytest_plugin.preflight")
    arguments += [word for name in absent for word in ("-p", f"no:{name}")]
    return int(pytest.main([*arguments, *options], plugins=[_Plugin(function)]))


def run_test(item: pytest.Item, following: pytest.Item | None) -> Iterator[pytest.TestReport]:
    """Run a test; yield the reports of its set-up, call and tear-down.

    Args:
        item: The test. It can run again.
        following: The test that runs next. Fixtures that it does not use are torn down.
    """
    item._initrequest()  # type: ignore[attr-defined] # of Function
    yield from runtestprotocol(item, log=False, nextitem=following)
