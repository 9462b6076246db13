"""The lines of impl that each test executes, and the duration of each test.

All tests run once on unchanged impl under coverage. Lines that run at import belong to no test.
Processes that a test starts are not recorded.
"""

import ast
import functools
import hashlib
import importlib
import json
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import coverage
from torch.autograd import Function

from impl_tests import forks
from impl_tests.mutants import IMPL
from impl_tests.mutation.changes import first_line
from impl_tests.mutation.session import Tests, use_impl
from spec_tests.meta_tests.import_order import ROOT

#: The ``seconds`` of a test, the ``lines`` that it executes by file, and whether it ``failed``.
Record = dict[str, Any]


class Lines:
    """The tests that execute a line or the statements around it.

    Args:
        records: The record of each test. A test that fails under coverage is left out.

    Attributes:
        seconds: The duration of each test.
        left_out: The tests that were left out.
        unrecorded: Tests without a recorded line; they may execute lines in other processes.
    """

    def __init__(self, records: Mapping[str, Record]) -> None:
        self.left_out = {name for name, record in records.items() if record["failed"]}
        records = {name: it for name, it in records.items() if name not in self.left_out}
        self.seconds = {name: float(record["seconds"]) for name, record in records.items()}
        self.unrecorded = {name for name, record in records.items() if not record["lines"]}
        self._tests: defaultdict[tuple[str, int], set[str]] = defaultdict(set)
        for name, record in records.items():
            for file, lines in record["lines"].items():
                for line in lines:
                    self._tests[file, line].add(name)

    def find_tests(self, file: str, line: int) -> set[str]:
        """Return the tests that execute the smallest possible statement around a line.

        For example, no test executes a function's defaults, since they run at import; the tests of
        its body are returned. For a file that only runs at import all tests are returned. Tests
        without a recorded line are always included.
        """
        for first, last in _find_spans(file, line):
            found = self._tests_between(file, first, last)
            if found:
                return found | self.unrecorded
        return set(self.seconds)

    def _tests_between(self, file: str, first: int, last: int) -> set[str]:
        found = [
            tests
            for (tested_file, line), tests in self._tests.items()
            if tested_file == file and first <= line <= last
        ]
        return set().union(*found)


def _find_spans(file: str, line: int) -> list[tuple[int, int]]:
    """Return first and last lines: of the line, of the statements around it, of the file."""
    nodes = ast.walk(ast.parse((IMPL / file).read_text(encoding="utf-8")))
    spans = [
        (first_line(node), node.end_lineno or 0) for node in nodes if isinstance(node, ast.stmt)
    ]
    around = [span for span in spans if span[0] <= line <= span[1]]
    around.sort(key=lambda span: span[1] - span[0])
    return [(line, line), *around, (1, sys.maxsize)]


def record(tests: Tests, *, processes: int, folder: Path) -> Lines:
    """Record the lines that each test executes.

    Args:
        tests: The tests.
        processes: The number of test files to run at a time.
        folder: The cache of the records. A record is valid while impl and the test file are
            unchanged.

    Raises:
        RuntimeError: The tests of a file hung or crashed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = {file: folder / f"{_hash_files(file)}.json" for file in tests.list_files()}
    missing = [file for file, path in paths.items() if not path.exists()]
    jobs = (forks.Job(file, functools.partial(_record_file, tests, file)) for file in missing)
    for done in forks.run(jobs, processes=processes):
        if done.result is None:
            raise RuntimeError(f"{done.job.subject} hung or crashed:\n{done.log}")
        paths[done.job.subject].write_text(json.dumps(done.result))
    found = [json.loads(path.read_text()) for path in paths.values()]
    return Lines({name: record for records in found for name, record in records.items()})


def _hash_files(file: str) -> str:
    digest = hashlib.sha256(file.encode())
    for path in [*sorted(IMPL.rglob("*.py")), ROOT / file]:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _record_file(tests: Tests, file: str, _: Path) -> dict[str, Record]:
    use_impl(IMPL.parent)
    tracer = coverage.Coverage(data_file=None, config_file=False, include=[f"{IMPL}/*"])
    tracer.start()
    _trace_backward()
    outcomes = list(tests.run(tests.tests_of_file(file), before=tracer.switch_context))
    tracer.stop()
    lines = _lines_by_test(tracer.get_data())
    return {
        outcome.name: {
            "seconds": outcome.seconds,
            "lines": lines.get(outcome.name, {}),
            "failed": outcome.failed,
        }
        for outcome in outcomes
    }


def _lines_by_test(data: coverage.CoverageData) -> Mapping[str, Mapping[str, list[int]]]:
    found: defaultdict[str, defaultdict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for path in data.measured_files():
        for line, names in data.contexts_by_lineno(path).items():
            for name in names:
                found[name][Path(path).relative_to(IMPL).as_posix()].append(line)
    return found


def _trace_backward() -> None:
    """Trace the backward functions of impl in the threads of autograd.

    Those threads are started in C++, so ``threading.settrace`` does not reach them.
    """
    names = [path.relative_to(IMPL.parent).with_suffix("") for path in IMPL.rglob("*.py")]
    modules = [".".join(name.parts).removesuffix(".__init__") for name in names]
    for name in modules:
        importlib.import_module(name)
    for function in Function.__subclasses__():
        if function.__module__ in modules:
            function.backward = staticmethod(_traced(function.backward))  # type: ignore[method-assign]


def _traced(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def traced(*args: Any) -> Any:
        if sys.gettrace() is None:
            sys.settrace(threading.gettrace())
        return function(*args)

    return traced
