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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.context import ForkProcess
from pathlib import Path

import pytest

from spec_tests.meta_tests.mutants import Mutant
from spec_tests.verdicts import by_clause

ROOT = Path(__file__).resolve().parents[3]
#: Seconds after which a trial is ended; a target that hangs is a caught one.
LIMIT = 180
#: Exit codes of pytest that come with verdicts: all passed, some failed.
_RAN = ("0", "1")
_FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class Trial:
    """What the suite said of one mutant.

    Args:
        mutant: The wrong target.
        survived: The clauses that did not fail on it.
        log: What pytest printed.
        seconds: How long it took.
    """

    mutant: Mutant
    survived: tuple[str, ...]
    log: str
    seconds: float


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


def run(
    mutants: Iterable[Mutant], tests: Mapping[str, Sequence[str]], *, processes: int
) -> Iterator[Trial]:
    """Try every mutant on the tests of the clauses that it breaks; yield trials as they end."""
    waiting = list(reversed(list(mutants)))
    running: dict[ForkProcess, _Running] = {}
    with tempfile.TemporaryDirectory() as folder:
        while waiting or running:
            while waiting and len(running) < processes:
                entry = _Running(waiting.pop(), Path(folder), tests)
                running[entry.process] = entry
            connection.wait([process.sentinel for process in running], timeout=1)
            for process in [each for each, entry in running.items() if entry.has_ended()]:
                yield running.pop(process).trial()


class _Running:
    """One process at work on one mutant."""

    def __init__(self, mutant: Mutant, folder: Path, tests: Mapping[str, Sequence[str]]) -> None:
        self._mutant = mutant
        self._home = folder / mutant.package
        self._home.mkdir()
        mutant.write(self._home)
        nodes = sorted({node for name in mutant.breaks for node in tests.get(name, ())})
        self._start = time.monotonic()
        self.process = _FORK.Process(target=_try, args=(mutant, self._home, nodes))
        self.process.start()

    def has_ended(self) -> bool:
        if self.process.is_alive() and time.monotonic() - self._start > LIMIT:
            self.process.kill()
            self.process.join()
        return not self.process.is_alive()

    def trial(self) -> Trial:
        self.process.join()
        log = (self._home / "log").read_text(errors="replace")
        seconds = time.monotonic() - self._start
        return Trial(self._mutant, _survived(self._mutant, self._home, log), log, seconds)


def _survived(mutant: Mutant, home: Path, log: str) -> tuple[str, ...]:
    status = home / "status"
    # No exit status: the process hung or crashed in a test, which is a failed test.
    if not status.exists():
        return ()
    if status.read_text() not in _RAN:
        raise RuntimeError(f"the suite did not run on mutant {mutant.name}:\n{log}")
    lines = (home / "verdicts.jsonl").read_text().splitlines()
    found = by_clause(json.loads(line) for line in lines)
    return tuple(name for name in mutant.breaks if found.get(name) != "fail")


def _try(mutant: Mutant, home: Path, nodes: Sequence[str]) -> None:
    sys.path.insert(0, str(home))
    options = ["--target", mutant.package, "--verdicts", str(home / "verdicts.jsonl")]
    arguments = [*nodes, *options, "--hypothesis-profile=mutants", "--timeout=60"]
    with _output_to(home / "log"):
        status = str(int(_pytest(arguments))) if _imports(mutant.package) else "not importable"
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
