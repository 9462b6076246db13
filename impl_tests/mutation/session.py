"""A pytest session that has collected the conformance tests, to be forked.

The session has used no device and not imported impl, so a forked process can import a changed impl
and start with any test. The tests of impl's private modules import impl, so each forked process
collects them itself.
"""

import itertools
import math
import os
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from spec_tests.meta_tests.import_order import CHAPTERS, ROOT

#: The chapters of the conformance suite. The tests of ``distributed`` start processes, where no
#: line is recorded, so they would run for every change.
CONFORMANCE = (*(name for name in CHAPTERS if name != "distributed"), "divergences")
#: The tests of impl's private modules.
PRIVATE = ("impl_tests/test_*.py", "impl_tests/_*/test_*.py")
#: Test files that do not run impl itself: they change it, read its text, or start ranks.
_EXCLUDED = (
    "test_distributed_page.py",
    "test_source_rules.py",
    "test_import_order.py",
    "test_mutants.py",
    "test_mutation.py",
    "test_orderings.py",
    "test_process_group.py",
)


@dataclass(frozen=True)
class Outcome:
    """The result of one test.

    Args:
        name: Its node id.
        failed: Whether it failed.
        seconds: Its duration.
    """

    name: str
    failed: bool
    seconds: float


class Tests:
    """The tests of a session, by node id. Tests of private modules are collected on first use."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session
        self._items = {item.nodeid: item for item in session.items}

    def list_files(self) -> list[str]:
        """Return the files of all tests, as in node ids."""
        found = [path for pattern in PRIVATE for path in ROOT.glob(pattern)]
        private = [path for path in found if path.name not in _EXCLUDED]
        collected = {_file_of(name) for name in self._items}
        return sorted(collected | {str(path.relative_to(ROOT)) for path in private})

    def tests_of_file(self, file: str) -> list[str]:
        """Return the node ids of a file's tests."""
        self._collect(file)
        return [name for name in self._items if _file_of(name) == file]

    def run(
        self, names: Iterable[str], before: Callable[[str], object] = print
    ) -> Iterator[Outcome]:
        """Run tests in this order; call ``before`` with the node id of each before it starts.

        A test that cannot be collected, or that ends the session, counts as failed.
        """
        for name, following in itertools.pairwise(itertools.chain(names, [""])):
            item, after = self._find_item(name), self._find_item(following)
            before(name)
            start = time.monotonic()
            failed = self._session.testsfailed
            has_run = item is not None and _run_protocol(item, after)
            has_failed = not has_run or self._session.testsfailed > failed
            yield Outcome(name, has_failed, time.monotonic() - start)

    def first_failure(self, names: Iterable[str], seconds: float = math.inf) -> str | None:
        """Run tests in this order until one fails; return its name, or None.

        No test starts after ``seconds``. The fixtures of the failed test are not torn down,
        because a wrong impl may hang there; so the process cannot run further tests.
        """
        self._session.config.pluginmanager.register(_RaiseOnFailure())
        started: list[str] = []
        try:
            outcomes = self.run(take_for_seconds(seconds, names), before=started.append)
            return next((outcome.name for outcome in outcomes if outcome.failed), None)
        except (_Failed, Exception):  # pytest itself may fail on errors that a wrong impl raises.
            return started[-1]

    def _find_item(self, name: str) -> pytest.Item | None:
        if name:
            self._collect(_file_of(name))
        return self._items.get(name)

    def _collect(self, file: str) -> None:
        if not any(_file_of(name) == file for name in self._items):
            found = self._session.perform_collect([file])
            self._items |= {item.nodeid: item for item in found}


def take_for_seconds(seconds: float, names: Iterable[str]) -> Iterator[str]:
    """Yield names until this process has used ``seconds`` of CPU time."""
    end = _cpu_seconds() + seconds
    return itertools.takewhile(lambda _: _cpu_seconds() < end, names)


def _cpu_seconds() -> float:
    """Return the CPU time of this process and of child processes that it has waited for."""
    return sum(os.times()[:4])


class _Failed(BaseException):
    """A test has failed."""


class _RaiseOnFailure:
    """Plugin that raises ``_Failed`` at the first failure."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Raise ``_Failed`` if this phase of the test failed."""
        if report.failed:
            raise _Failed


def _run_protocol(item: pytest.Item, following: pytest.Item | None) -> bool:
    """Run a test; return False if it interrupted the session."""
    try:
        item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
    except (KeyboardInterrupt, pytest.exit.Exception):
        return False
    return True


def _file_of(name: str) -> str:
    return name.partition("::")[0]


def with_tests(use: Callable[[Tests], None]) -> None:
    """Call ``use`` in a session that has collected all tests and prints nothing."""
    arguments = [*(f"spec_tests/{chapter}" for chapter in CONFORMANCE), "-qq", "-s"]
    plugins = ["-p", "no:cacheprovider", "-p", "no:benchmark"]
    options = ["--accelerator=sim", "--hypothesis-profile=mutation", "--timeout=60"]
    os.chdir(ROOT)
    pytest.main([*arguments, *plugins, *options], plugins=[_Loop(use)])


class _Loop:
    """Plugin that calls a function instead of running the collected tests."""

    def __init__(self, use: Callable[[Tests], None]) -> None:
        self._use = use
        self._folders: dict[Path, pytest.Collector] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_directory(
        self, path: Path
    ) -> Generator[None, pytest.Collector, pytest.Collector]:
        """Cache the node of each folder, so that tests collected later find its fixtures."""
        node = yield
        return self._folders.setdefault(path, node)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Call the function."""
        self._use(Tests(session))
        return True


def use_impl(folder: Path) -> None:
    """Make this process, and processes that its tests start, import impl from ``folder``."""
    sys.path.insert(0, str(folder))
    os.environ.update(
        PYTHONPATH=os.pathsep.join([str(folder), str(ROOT)]),
        PYTHONSAFEPATH="1",
    )
