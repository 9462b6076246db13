"""A pytest session that has collected the conformance tests, to be forked.

It has touched no device and not imported impl; so a forked process begins with the first test, and
finds whichever impl it is told to. The tests of impl's private modules import it themselves, and
are collected where they are run.
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

#: The conformance tests of a target, and the tests of impl's private modules. What runs in
#: processes of its own is not seen to execute a line, and would be tried for every change.
CONFORMANCE = (*(name for name in CHAPTERS if name != "distributed"), "divergences")
PRIVATE = ("impl_tests/test_*.py", "impl_tests/_*/test_*.py")
#: Tests that do not run impl, but change it themselves, read its text, or start ranks.
_OF_OTHERS = (
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
    """What came of one test.

    Args:
        name: Its node id.
        failed: Whether it failed.
        seconds: How long it took.
    """

    name: str
    failed: bool
    seconds: float


class Tests:
    """The tests of a session, by node id, each collected at the latest when it is asked for."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session
        self._items = {item.nodeid: item for item in session.items}

    def files(self) -> list[str]:
        """The files of all tests, as node ids begin."""
        found = [path for pattern in PRIVATE for path in ROOT.glob(pattern)]
        private = [path for path in found if path.name not in _OF_OTHERS]
        collected = {_file_of(name) for name in self._items}
        return sorted(collected | {str(path.relative_to(ROOT)) for path in private})

    def of_file(self, file: str) -> list[str]:
        """The node ids of a file's tests."""
        self._collect(file)
        return [name for name in self._items if _file_of(name) == file]

    def run(
        self, names: Iterable[str], before: Callable[[str], object] = print
    ) -> Iterator[Outcome]:
        """Run tests in this order, and call ``before`` with the name of each at its start.

        One that cannot be collected, or ends the session, has failed.
        """
        for name, following in itertools.pairwise(itertools.chain(names, [""])):
            item, after = self._item(name), self._item(following)
            before(name)
            start = time.monotonic()
            failed = self._session.testsfailed
            is_over = item is not None and _runs(item, after)
            has_failed = not is_over or self._session.testsfailed > failed
            yield Outcome(name, has_failed, time.monotonic() - start)

    def first_failure(self, names: Iterable[str], seconds: float = math.inf) -> str | None:
        """Run tests in this order until one fails, and name it; begin none after ``seconds``.

        No other can be run after it: what the test has set up stays, since taking it down is
        where a wrong impl may hang.
        """
        self._session.config.pluginmanager.register(_AtFailure())
        begun: list[str] = []
        try:
            ended = self.run(within(seconds, names), before=begun.append)
            return next((each.name for each in ended if each.failed), None)
        except (_Failed, Exception):  # Of what a wrong impl raises pytest may fail to report.
            return begun[-1]

    def _item(self, name: str) -> pytest.Item | None:
        if name:
            self._collect(_file_of(name))
        return self._items.get(name)

    def _collect(self, file: str) -> None:
        if not any(_file_of(name) == file for name in self._items):
            found = self._session.perform_collect([file])
            self._items |= {item.nodeid: item for item in found}


def within(seconds: float, names: Iterable[str]) -> Iterator[str]:
    """Give these names until the processor has worked for so long."""
    end = _worked() + seconds
    return itertools.takewhile(lambda _: _worked() < end, names)


def _worked() -> float:
    """Seconds of this process and of those that it has waited for, however busy the machine."""
    return sum(os.times()[:4])


class _Failed(BaseException):
    """A test has failed, and nothing else is to be run."""


class _AtFailure:
    """Leaves everything at the first failure."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Look at one phase of one test."""
        if report.failed:
            raise _Failed


def _runs(item: pytest.Item, following: pytest.Item | None) -> bool:
    """Run a test; tell whether it left the session alone."""
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
    pytest.main([*arguments, *plugins, *options], plugins=[_Instead(use)])


class _Instead:
    """Does something else than running the tests that were collected."""

    def __init__(self, use: Callable[[Tests], None]) -> None:
        self._use = use
        self._folders: dict[Path, pytest.Collector] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_directory(
        self, path: Path
    ) -> Generator[None, pytest.Collector, pytest.Collector]:
        """Keep a folder's node: what is collected later finds the fixtures that belong to it."""
        node = yield
        return self._folders.setdefault(path, node)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Take the place of pytest's own loop."""
        self._use(Tests(session))
        return True


def use_impl(folder: Path) -> None:
    """Let this process, and those that its tests start, import impl from ``folder``."""
    sys.path.insert(0, str(folder))
    searched = {"PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}
    os.environ.update(searched, PYTHONSAFEPATH="1")
