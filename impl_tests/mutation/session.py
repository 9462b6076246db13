"""A pytest session that has collected the conformance tests and is then forked.

The session has used no device and has not imported impl. So each forked process can import a
changed impl and start with any test. The tests of impl's private modules import impl, so each
forked process collects these tests itself.
"""

import itertools
import os
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from spec_tests.harness.conformance import clauses
from spec_tests.tests.import_order import ROOT

#: The chapters that run impl in this process.
CHAPTERS = [name for name in clauses.CHAPTERS if name != "cpp_front_end"]
#: Patterns of the files that test impl's private modules.
PRIVATE = ("impl_tests/test_*.py", "impl_tests/extras/test_*.py")
#: Test files that do not run impl in this process: they test changed copies of impl, read its
#: source, or start ranks.
_EXCLUDED = (
    "test_distributed_page.py",
    "test_source_rules.py",
    "test_import_order.py",
    "test_mutation.py",
    "test_process_group.py",
    "test_weekly.py",
)


@dataclass(frozen=True)
class Outcome:
    """The result of one test.

    Args:
        name: The node id of the test.
        failed: Whether the test failed.
        seconds: The duration of the test in seconds.
    """

    name: str
    failed: bool
    seconds: float


class CollectedTests:
    """The tests of a session. A file that tests private modules is collected at its first use."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session
        self._items = {item.nodeid: item for item in session.items}

    def list_files(self) -> list[str]:
        """Return the files of all tests, as node ids write them."""
        paths = [path for pattern in PRIVATE for path in ROOT.glob(pattern)]
        private = [path for path in paths if path.name not in _EXCLUDED]
        collected = {_file_of(node_id) for node_id in self._items}
        return sorted(collected | {str(path.relative_to(ROOT)) for path in private})

    def tests_of_file(self, file: str) -> list[str]:
        """Return the node ids of a file's tests."""
        self._collect(file)
        return [node_id for node_id in self._items if _file_of(node_id) == file]

    def run(
        self, node_ids: Iterable[str], before: Callable[[str], object] = print
    ) -> Iterator[Outcome]:
        """Run tests in the given order, and yield their results.

        A test that cannot be collected or that ends the session counts as failed.

        Args:
            node_ids: The node ids of the tests.
            before: A function to call with the node id of each test before the test starts.
        """
        for node_id, following in itertools.pairwise(itertools.chain(node_ids, [""])):
            item, after = self._find_item(node_id), self._find_item(following)
            before(node_id)
            start = time.monotonic()
            failed = self._session.testsfailed
            has_run = item is not None and _run_protocol(item, after)
            has_failed = not has_run or self._session.testsfailed > failed
            yield Outcome(node_id, has_failed, time.monotonic() - start)

    def first_failure(self, node_ids: Iterable[str]) -> str | None:
        """Run tests in the given order until one fails; return its node id, or None.

        The fixtures of the failed test are not torn down, because a wrong impl may hang in the
        teardown. So this process cannot run more tests.
        """
        self._session.config.pluginmanager.register(_FailurePlugin())
        started: list[str] = []
        try:
            outcomes = self.run(node_ids, before=started.append)
            return next((outcome.name for outcome in outcomes if outcome.failed), None)
        except (_TestFailed, Exception):  # An error of a wrong impl may make pytest itself fail.
            return started[-1]

    def _find_item(self, node_id: str) -> pytest.Item | None:
        if node_id:
            self._collect(_file_of(node_id))
        return self._items.get(node_id)

    def _collect(self, file: str) -> None:
        if not any(_file_of(node_id) == file for node_id in self._items):
            found = self._session.perform_collect([file])
            self._items |= {item.nodeid: item for item in found}


class _TestFailed(BaseException):
    """Raised when a test has failed."""


class _FailurePlugin:
    """A pytest plugin that raises ``_TestFailed`` at the first failure."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Raise ``_TestFailed`` if this phase of the test failed."""
        if report.failed:
            raise _TestFailed


def _run_protocol(item: pytest.Item, next_item: pytest.Item | None) -> bool:
    """Run a test; return False if the test interrupted the session."""
    try:
        item.ihook.pytest_runtest_protocol(item=item, nextitem=next_item)
    except (KeyboardInterrupt, pytest.exit.Exception):
        return False
    return True


def _file_of(node_id: str) -> str:
    return node_id.partition("::")[0]


def call_with_tests(function: Callable[[CollectedTests], None]) -> None:
    """Collect the conformance tests in a pytest session, and pass them to ``function``."""
    arguments = [*(f"spec_tests/{chapter}" for chapter in CHAPTERS), "-qq", "-s"]
    plugins = ["-p", "no:cacheprovider", "-p", "no:benchmark"]
    # Each fork enables the accelerator and imports a changed impl.
    plugins += ["-p", "no:spec_tests.harness.pytest_plugin.preflight"]
    options = ["--accelerator=sim", "--hypothesis-profile=mutation", "--timeout=60"]
    os.chdir(ROOT)
    pytest.main([*arguments, *plugins, *options], plugins=[_FunctionCallPlugin(function)])


class _FunctionCallPlugin:
    """A pytest plugin that calls a function instead of running the collected tests."""

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

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Call the function with the collected tests."""
        self._function(CollectedTests(session))
        return True


def import_impl_from(folder: Path) -> None:
    """Make this process and its child processes import impl from ``folder``."""
    sys.path.insert(0, str(folder))
    os.environ.update(
        PYTHONPATH=os.pathsep.join([str(folder), str(ROOT)]),
        PYTHONSAFEPATH="1",
    )
