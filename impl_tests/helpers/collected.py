"""A pytest session that collects tests once; jobs then run them in forked processes.

The process that collects uses no device and does not import a target, so that it may fork, and
each fork can import its own target.
"""

import gc
import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol

from spec_tests.harness.conformance import clauses

__all__ = ["CHAPTERS", "ROOT", "CollectedTests", "Outcome", "call_with_tests"]

ROOT = Path(__file__).resolve().parents[2]
#: The folders of the chapters.
CHAPTERS = tuple(f"spec_tests/{name}" for name in clauses.CHAPTERS)


@dataclass(frozen=True)
class Outcome:
    """The result of one test.

    Args:
        test: The node id of the test.
        verdict: ``passed``, ``failed`` or ``skipped``.
        seconds: The duration of the test in seconds.
    """

    test: str
    verdict: str
    seconds: float


class CollectedTests:
    """The tests of a session. A file that is not collected yet is collected at its first use.

    Attributes:
        clauses: Node id of each test that was collected first -> the ids of its clauses.
    """

    def __init__(self, session: pytest.Session) -> None:
        self._session = session
        self._items = {item.nodeid: item for item in session.items}
        by_folder = {item.path.parent: item for item in session.items}
        self._elsewhere = [*by_folder.items()][:2]
        self.clauses = {name: clauses.clauses_of_test(i) for name, i in self._items.items()}

    def find_capabilities(self) -> None:
        """Find the features that the devices lack. A run looks for them once, in this process."""
        # pytest imports the hooks first, so that it rewrites their assertions.
        from spec_tests.harness.pytest_plugin.hooks import capabilities_of

        capabilities_of(self._session.config)

    def list_files(self) -> set[str]:
        """Return the collected files, as node ids write them."""
        return {_file_of(name) for name in self._items}

    def tests_of_file(self, file: str) -> list[str]:
        """Return the node ids of a file's tests."""
        if file not in self.list_files():
            found = self._session.perform_collect([file])
            self._items |= {item.nodeid: item for item in found}
        return [name for name in self._items if _file_of(name) == file]

    def run(
        self, tests: Iterable[str], before: Callable[[str], object] = lambda name: None
    ) -> Iterator[Outcome]:
        """Run tests in the given order. Print their names, and yield their results.

        A test that cannot be collected, or that makes pytest itself fail, counts as failed.

        Args:
            tests: The node ids of the tests.
            before: A function to call with the node id of each test before the test starts.
        """
        for name in tests:
            print(name, flush=True)  # `forks` ends a process that prints nothing for a long time.
            before(name)
            start = time.monotonic()
            try:
                verdict = self._run_test(name)
            except (KeyboardInterrupt, pytest.exit.Exception, Exception) as error:
                print(repr(error))
                verdict = "failed"
            yield Outcome(name, verdict, time.monotonic() - start)

    def _run_test(self, name: str) -> str:
        if name not in self._items:
            self.tests_of_file(_file_of(name))
        item = self._items[name]
        item._initrequest()  # type: ignore[attr-defined] # of Function; the test can run again
        # The next item is in another folder, so that only fixtures of the session are kept.
        following = next((i for folder, i in self._elsewhere if folder != item.path.parent), None)
        reports = runtestprotocol(item, log=False, nextitem=following)
        for report in reports:
            if report.failed:
                print(report.longreprtext, flush=True)
        found = {report.outcome for report in reports}
        return next(verdict for verdict in ("failed", "skipped", "passed") if verdict in found)


def _file_of(name: str) -> str:
    return name.partition("::")[0]


class _Plugin:
    """A pytest plugin that calls a function in place of running the collected tests."""

    def __init__(self, function: Callable[[CollectedTests], None]) -> None:
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
        self._function(CollectedTests(session))
        return True


def call_with_tests(function: Callable[[CollectedTests], None], *options: str) -> int:
    """Collect tests in this process and call ``function`` with them.

    Args:
        function: A function of the tests.
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
