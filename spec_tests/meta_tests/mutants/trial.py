"""Running the suite on wrong targets, several at a time, each in a process of its own.

The processes are forked from one that has imported torch and pytest but has touched no device:
that saves most of the start, and a mutant that hangs or crashes takes nothing with it.
"""

import contextlib
import importlib
import json
import multiprocessing
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Protocol

import pytest

from spec_tests.verdicts import by_clause

ROOT = Path(__file__).resolve().parents[3]
#: Exit codes of pytest that come with verdicts: all passed, some failed.
_RAN = ("0", "1")
_FORK = multiprocessing.get_context("fork")


class WrongTarget(Protocol):
    """A target that is written into a folder to be tried."""

    @property
    def name(self) -> str:
        """What is wrong with it."""

    @property
    def package(self) -> str:
        """The name under which it is imported."""

    def write(self, folder: Path) -> None:
        """Write the package into ``folder``."""


@dataclass(frozen=True)
class Job:
    """One target to try.

    Args:
        target: The wrong target.
        tests: Node ids to run, in this order.
        options: Further options of pytest.
        limit: Seconds after which the trial is ended; a target that hangs is a caught one.
    """

    target: WrongTarget
    tests: tuple[str, ...]
    options: tuple[str, ...] = ()
    limit: float = 240


@dataclass(frozen=True)
class Trial:
    """What the suite said of one target.

    Args:
        job: What was tried.
        verdicts: One a clause; empty if the process hung or crashed in a test.
        ended: Whether the run came to its end.
        log: What pytest printed.
        seconds: How long it took.
    """

    job: Job
    verdicts: Mapping[str, str]
    ended: bool
    log: str
    seconds: float

    def is_caught(self, clause: str) -> bool:
        """Whether the tests of ``clause`` failed; a hang or a crash is a failure of all."""
        return not self.ended or self.verdicts.get(clause) == "fail"


def tests_by_clause() -> dict[str, list[str]]:
    """The node ids of every clause's tests, from one collection in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tests.json"
        process = _FORK.Process(target=_collect, args=(path,))
        process.start()
        process.join()
        if not path.exists():
            raise RuntimeError("the suite could not be collected: run pytest --collect-only")
        found: dict[str, list[str]] = json.loads(path.read_text())
    return found


def run(jobs: Iterable[Job], *, processes: int) -> Iterator[Trial]:
    """Try every target, ``processes`` at a time; yield trials as they end."""
    waiting = list(reversed(list(jobs)))
    running: dict[ForkProcess, _Running] = {}
    with tempfile.TemporaryDirectory() as folder:
        while waiting or running:
            while waiting and len(running) < processes:
                entry = _Running(waiting.pop(), Path(folder))
                running[entry.process] = entry
            connection.wait([process.sentinel for process in running], timeout=1)
            for process in [each for each, entry in running.items() if entry.has_ended()]:
                yield running.pop(process).trial()


class _Running:
    """One process at work on one target."""

    def __init__(self, job: Job, folder: Path) -> None:
        self._job = job
        self._home = folder / job.target.package
        self._home.mkdir()
        job.target.write(self._home)
        self._start = time.monotonic()
        self.process = _FORK.Process(target=_try, args=(job, self._home))
        self.process.start()

    def has_ended(self) -> bool:
        if self.process.is_alive() and time.monotonic() - self._start > self._job.limit:
            self.process.kill()
            self.process.join()
        return not self.process.is_alive()

    def trial(self) -> Trial:
        self.process.join()
        log = (self._home / "log").read_text(errors="replace")
        seconds = time.monotonic() - self._start
        status = self._home / "status"
        # No exit status: the process hung or crashed in a test.
        if not status.exists():
            return Trial(self._job, {}, False, log, seconds)
        if status.read_text() not in _RAN:
            raise RuntimeError(f"the suite did not run on {self._job.target.name}:\n{log}")
        lines = (self._home / "verdicts.jsonl").read_text().splitlines()
        verdicts = by_clause(json.loads(line) for line in lines)
        return Trial(self._job, verdicts, True, log, seconds)


def _try(job: Job, home: Path) -> None:
    sys.path.insert(0, str(home))
    target = ["--target", job.target.package, "--verdicts", str(home / "verdicts.jsonl")]
    arguments = [*job.tests, *target, "--hypothesis-profile=mutants", *job.options]
    with _output_to(home / "log"):
        importable = _imports(job.target.package)
        status = str(int(_pytest(arguments))) if importable else "not importable"
    (home / "status").write_text(status)


def _imports(package: str) -> bool:
    # A package that cannot be imported fails every test and proves nothing about any of them.
    try:
        importlib.import_module(package)
    except Exception:
        traceback.print_exc()
        return False
    return True


def _collect(path: Path) -> None:
    plugin = _Collector()
    with _output_to(path.with_suffix(".log")):
        _pytest(["spec_tests", "--ignore=spec_tests/meta_tests", "--collect-only"], plugin)
    path.write_text(json.dumps(plugin.found))


class _Collector:
    """Notes which test names which clause."""

    def __init__(self) -> None:
        self.found: dict[str, list[str]] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            for marker in item.iter_markers("clause"):
                self.found.setdefault(marker.args[0], []).append(item.nodeid)


def _pytest(arguments: list[str], *plugins: object) -> int:
    os.chdir(ROOT)
    return pytest.main(["-q", "-p", "no:cacheprovider", *arguments], plugins=list(plugins))


@contextlib.contextmanager
def _output_to(path: Path) -> Iterator[None]:
    with (
        path.open("w") as file,
        contextlib.redirect_stdout(file),
        contextlib.redirect_stderr(file),
    ):
        yield
