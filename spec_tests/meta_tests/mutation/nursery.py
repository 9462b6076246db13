"""Processes that run chosen tests on an impl of their own, forked from a session that is ready.

The session has collected the conformance tests, but has touched no device and not imported impl;
so a forked process begins with the first test, and finds whichever impl it is told to. The tests
of impl's private modules import it themselves, and are collected where they are run.
"""

import contextlib
import itertools
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any, Generic, TypeVar

import pytest

ROOT = Path(__file__).resolve().parents[3]
#: The conformance tests of a target, and the tests of impl's private modules.
CONFORMANCE = (
    "comm",
    "functions",
    "scatter_gather",
    "replicate",
    "parallel_apply",
    "data_parallel",
    "divergences",
)
PRIVATE = "meta_tests/test_impl_*.py"
_FORK = multiprocessing.get_context("fork")
T = TypeVar("T")


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
        private = (ROOT / "spec_tests").glob(PRIVATE)
        collected = {_file_of(name) for name in self._items}
        return sorted(collected | {str(path.relative_to(ROOT)) for path in private})

    def of_file(self, file: str) -> list[str]:
        """The node ids of a file's tests."""
        self._collect(file)
        return [name for name in self._items if _file_of(name) == file]

    def run(
        self, names: Iterable[str], before: Callable[[str], object] = print
    ) -> Iterator[Outcome]:
        """Run tests in this order, and call ``before`` with the name of each at its start."""
        for name, following in itertools.pairwise([*names, None]):
            assert name is not None
            item, after = self._item(name), following and self._item(following)
            before(name)
            start = time.monotonic()
            failed = self._session.testsfailed
            item.ihook.pytest_runtest_protocol(item=item, nextitem=after or None)
            yield Outcome(name, self._session.testsfailed > failed, time.monotonic() - start)

    def _item(self, name: str) -> pytest.Item:
        self._collect(_file_of(name))
        return self._items[name]

    def _collect(self, file: str) -> None:
        if not any(_file_of(name) == file for name in self._items):
            found = self._session.perform_collect([file])
            self._items |= {item.nodeid: item for item in found}


def _file_of(name: str) -> str:
    return name.partition("::")[0]


@dataclass(frozen=True)
class Job(Generic[T]):
    """What to do in a process of its own.

    Args:
        subject: What the job is about.
        work: Called there with the tests and a folder; its result must be plain data.
        limit: Seconds after which the process is ended.
    """

    subject: T
    work: Callable[[Tests, Path], Any]
    limit: float = 600


@dataclass(frozen=True)
class Done(Generic[T]):
    """A job that has ended.

    Args:
        job: The job.
        result: What its work returned; None if the process hung or crashed.
        log: What was printed meanwhile.
        seconds: How long it took.
    """

    job: Job[T]
    result: Any
    log: str
    seconds: float


def with_tests(use: Callable[[Tests], None]) -> None:
    """Call ``use`` in a session that has collected all tests and prints nothing."""
    arguments = [*(f"spec_tests/{chapter}" for chapter in CONFORMANCE), "-qq", "-s"]
    plugins = ["-p", "no:cacheprovider", "-p", "no:benchmark"]
    options = ["--accelerator=sim", "--hypothesis-profile=mutation", "--timeout=120"]
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


def run(tests: Tests, jobs: Iterator[Job[T]], *, processes: int) -> Iterator[Done[T]]:
    """Do ``jobs``, ``processes`` at a time; yield them as they end.

    A job is taken from ``jobs`` only when its process is about to start.
    """
    running: dict[ForkProcess, _Running[T]] = {}
    while True:
        for job in itertools.islice(jobs, processes - len(running)):
            entry = _Running(job, tests)
            running[entry.process] = entry
        if not running:
            return
        connection.wait([process.sentinel for process in running], timeout=1)
        for process in [each for each, entry in running.items() if entry.has_ended()]:
            yield running.pop(process).done()


class _Running(Generic[T]):
    """One process at work."""

    def __init__(self, job: Job[T], tests: Tests) -> None:
        self._job = job
        self._home = Path(tempfile.mkdtemp())
        self._start = time.monotonic()
        sys.stdout.flush()
        self.process = _FORK.Process(target=_work, args=(job, tests, self._home))
        self.process.start()

    def has_ended(self) -> bool:
        if self.process.is_alive() and time.monotonic() - self._start > self._job.limit:
            self.process.kill()
            self.process.join()
        return not self.process.is_alive()

    def done(self) -> Done[T]:
        self.process.join()
        path = self._home / "result"
        result = json.loads(path.read_text()) if path.exists() else None
        log = (self._home / "log").read_text(errors="replace")
        shutil.rmtree(self._home)
        return Done(self._job, result, log, time.monotonic() - self._start)


def _work(job: Job[Any], tests: Tests, home: Path) -> None:
    with (home / "log").open("w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    with contextlib.suppress(BaseException):
        try:
            result = job.work(tests, home)
            (home / "part").write_text(json.dumps(result))
            (home / "part").rename(home / "result")
        except BaseException:
            traceback.print_exc()
            raise
    sys.stdout.flush()
    # Without the usual end of a process, in which a thread of a wrong impl may hang.
    os._exit(0)


def use_impl(folder: Path) -> None:
    """Let this process, and those that its tests start, import impl from ``folder``."""
    sys.path.insert(0, str(folder))
    searched = {"PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}
    os.environ.update(searched, PYTHONSAFEPATH="1")
