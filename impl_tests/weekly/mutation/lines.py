"""The lines of impl that each test executes, and the duration of each test.

All tests run once on unchanged impl under coverage. Lines that are executed at import belong to no
test. Lines that are executed by other processes of a test are not recorded. A test that fails, as
a few tests of torch.compile do under coverage, judges no change.
"""

import functools
import hashlib
import importlib
import json
import os
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch.autograd import Function

from impl_tests.helpers import forks
from impl_tests.helpers.collected import ROOT, CollectedTests
from impl_tests.weekly.mutation.changes import IMPL

__all__ = ["ExecutedLines", "import_impl_from", "record_lines"]

#: Patterns of the files that test impl's private modules. They import impl, so that each process
#: collects them itself.
_PRIVATE = ("impl_tests/test_*.py", "impl_tests/on_devices/test_*.py")
#: Test files that do not run impl in this process: they read its source.
_EXCLUDED = ("test_source_rules.py",)
#: The folder for cached records. A record is valid until impl or the test file changes.
_CACHE = Path(tempfile.gettempdir()) / "torch-parallel-spec-lines"
#: A test's duration in ``seconds``, and the ``lines`` that it executes in each file.
Record = dict[str, Any]


class ExecutedLines:
    """The tests that execute each line of impl.

    Args:
        records: Node id of a test -> its record.

    Attributes:
        seconds: Node id of a test -> its duration in seconds.
        unrecorded: Node ids of tests without recorded lines. They may execute lines in other
            processes.
    """

    def __init__(self, records: Mapping[str, Record]) -> None:
        self.seconds = {name: float(record["seconds"]) for name, record in records.items()}
        self.unrecorded = {name for name, record in records.items() if not record["lines"]}
        self._by_line: defaultdict[tuple[str, int], set[str]] = defaultdict(set)
        self._by_file: defaultdict[str, set[str]] = defaultdict(set)
        for name, record in records.items():
            for file, lines in record["lines"].items():
                self._by_file[file].add(name)
                for line in lines:
                    self._by_line[file, line].add(name)

    def find_tests(self, file: str, line: int) -> set[str]:
        """Return the tests that execute a line, else those of its file, else all tests.

        For example, default arguments are evaluated at import and not by a test. Tests without
        recorded lines are always included.
        """
        tests = self._by_line[file, line] or self._by_file[file]
        return tests | self.unrecorded if tests else set(self.seconds)


def record_lines(tests: CollectedTests, *, processes: int) -> ExecutedLines:
    """Record the lines that each test executes.

    Args:
        tests: The tests.
        processes: The number of test files that run at the same time.

    Raises:
        RuntimeError: The tests of a file hung or crashed.
    """
    _CACHE.mkdir(parents=True, exist_ok=True)
    paths = {file: _CACHE / f"{_hash_files(file)}.json" for file in _list_files(tests)}
    missing = [file for file, path in paths.items() if not path.exists()]
    jobs = (
        forks.Job(file, functools.partial(_trace_tests_of_file, tests, file)) for file in missing
    )
    for ended in forks.run(jobs, processes=processes):
        if ended.result is None:
            raise RuntimeError(f"{ended.job.subject} hung or crashed:\n{ended.log}")
        paths[ended.job.subject].write_text(json.dumps(ended.result))
    by_file = [json.loads(path.read_text()) for path in paths.values()]
    return ExecutedLines({name: record for records in by_file for name, record in records.items()})


def _list_files(tests: CollectedTests) -> list[str]:
    """Return the files of all tests: those of the suite and of impl's private modules."""
    paths = [path for pattern in _PRIVATE for path in ROOT.glob(pattern)]
    private = {str(path.relative_to(ROOT)) for path in paths if path.name not in _EXCLUDED}
    return sorted(tests.list_files() | private)


def import_impl_from(folder: Path) -> None:
    """Make this process and its child processes import impl from ``folder``."""
    sys.path.insert(0, str(folder))
    os.environ.update(
        PYTHONPATH=os.pathsep.join([str(folder), str(ROOT)]),
        PYTHONSAFEPATH="1",
    )


def _hash_files(file: str) -> str:
    """Return a hash of all files of impl and of one test file."""
    digest = hashlib.sha256(file.encode())
    for path in [*sorted(IMPL.rglob("*.py")), ROOT / file]:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _trace_tests_of_file(tests: CollectedTests, file: str, _: Path) -> dict[str, Record]:
    """Run the tests of a file under coverage; return the record of each test."""
    import_impl_from(IMPL.parent)
    coverage = importlib.import_module("coverage")  # installed only by `tox -e weekly`
    tracer = coverage.Coverage(data_file=None, config_file=False, include=[f"{IMPL}/*"])
    tracer.start()
    _trace_backward()
    outcomes = list(tests.run(tests.tests_of_file(file), before=tracer.switch_context))
    tracer.stop()
    lines = _lines_by_test(tracer.get_data())
    return {
        outcome.test: {"seconds": outcome.seconds, "lines": lines.get(outcome.test, {})}
        for outcome in outcomes
        if outcome.verdict != "failed"
    }


def _lines_by_test(data: Any) -> Mapping[str, Mapping[str, list[int]]]:
    """Return, for each test and each file of impl, the lines that the test executes."""
    lines: defaultdict[str, defaultdict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for path in data.measured_files():
        for line, tests in data.contexts_by_lineno(path).items():
            for test in tests:
                lines[test][Path(path).relative_to(IMPL).as_posix()].append(line)
    return lines


def _trace_backward() -> None:
    """Make coverage trace impl's backward functions in the threads of autograd.

    C++ starts the threads of autograd, so ``threading.settrace`` has no effect on them.
    """
    paths = [path.relative_to(IMPL.parent).with_suffix("") for path in IMPL.rglob("*.py")]
    modules = [".".join(path.parts).removesuffix(".__init__") for path in paths]
    for name in modules:
        importlib.import_module(name)
    for function in Function.__subclasses__():
        if function.__module__ in modules:
            function.backward = staticmethod(_with_tracing(function.backward))  # type: ignore[method-assign]


def _with_tracing(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``function`` with a wrapper that starts tracing in the thread that calls it."""

    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        if sys.gettrace() is None:
            sys.settrace(threading.gettrace())
        return function(*args)

    return wrapper
