"""Which tests execute a line of impl, and how long each test takes.

One run of all tests on impl as it is, under coverage, tells. Lines that run when impl is imported
are no test's, and processes that a test starts are not seen.
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

#: A test's ``seconds``, the ``lines`` that it executes by file of impl, and whether it ``failed``.
Record = dict[str, Any]


class Lines:
    """The tests that execute a line, or what is around it.

    Args:
        records: What each test executes. One that fails under coverage is left out.

    Attributes:
        seconds: How long each test takes.
        left_out: The tests that were left out.
        unseen: Tests that execute no line here; they may do so in a process of their own.
    """

    def __init__(self, records: Mapping[str, Record]) -> None:
        self.left_out = {name for name, record in records.items() if record["failed"]}
        records = {name: each for name, each in records.items() if name not in self.left_out}
        self.seconds = {name: float(record["seconds"]) for name, record in records.items()}
        self.unseen = {name for name, record in records.items() if not record["lines"]}
        self._tests: defaultdict[tuple[str, int], set[str]] = defaultdict(set)
        for name, record in records.items():
            for file, lines in record["lines"].items():
                for line in lines:
                    self._tests[file, line].add(name)

    def tests(self, file: str, line: int) -> set[str]:
        """The tests of the smallest statement around a line that a test executes.

        The defaults of a function run when impl is imported; its tests are those of its body. A
        file that runs at import only is tried by all tests. What a test executes in a process of
        its own is not seen: such tests are named in any case.
        """
        for first, last in _spans(file, line):
            found = self._tests_between(file, first, last)
            if found:
                return found | self.unseen
        return set(self.seconds)

    def _tests_between(self, file: str, first: int, last: int) -> set[str]:
        found = [
            tests
            for (at, line), tests in self._tests.items()
            if at == file and first <= line <= last
        ]
        return set().union(*found)


def _spans(file: str, line: int) -> list[tuple[int, int]]:
    """The first and last lines of the line, of the statements around it, and of the file."""
    nodes = ast.walk(ast.parse((IMPL / file).read_text(encoding="utf-8")))
    spans = [
        (first_line(node), node.end_lineno or 0) for node in nodes if isinstance(node, ast.stmt)
    ]
    around = [span for span in spans if span[0] <= line <= span[1]]
    around.sort(key=lambda span: span[1] - span[0])
    return [(line, line), *around, (1, sys.maxsize)]


def record(tests: Tests, *, processes: int, folder: Path) -> Lines:
    """Find out what every test executes.

    Args:
        tests: The tests.
        processes: How many files of tests are run at a time.
        folder: Keeps what was recorded, for a later run on the same files.

    Raises:
        RuntimeError: A file's tests did not come to their end.
    """
    folder.mkdir(parents=True, exist_ok=True)
    kept = {file: folder / f"{_key(file)}.json" for file in tests.files()}
    missing = [file for file, path in kept.items() if not path.exists()]
    jobs = (forks.Job(file, functools.partial(_record_file, tests, file)) for file in missing)
    for each in forks.run(jobs, processes=processes):
        if each.result is None:
            raise RuntimeError(f"{each.job.subject} did not end:\n{each.log}")
        kept[each.job.subject].write_text(json.dumps(each.result))
    found = [json.loads(path.read_text()) for path in kept.values()]
    return Lines({name: each for records in found for name, each in records.items()})


def _key(file: str) -> str:
    digest = hashlib.sha256(file.encode())
    for path in [*sorted(IMPL.rglob("*.py")), ROOT / file]:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _record_file(tests: Tests, file: str, _: Path) -> dict[str, Record]:
    use_impl(IMPL.parent)
    tracer = coverage.Coverage(data_file=None, config_file=False, include=[f"{IMPL}/*"])
    tracer.start()
    _trace_backward()
    outcomes = list(tests.run(tests.of_file(file), before=tracer.switch_context))
    tracer.stop()
    lines = _lines_by_test(tracer.get_data())
    return {
        each.name: {
            "seconds": each.seconds,
            "lines": lines.get(each.name, {}),
            "failed": each.failed,
        }
        for each in outcomes
    }


def _lines_by_test(data: coverage.CoverageData) -> Mapping[str, Mapping[str, list[int]]]:
    found: defaultdict[str, defaultdict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for path in data.measured_files():
        for line, names in data.contexts_by_lineno(path).items():
            for name in names:
                found[name][Path(path).relative_to(IMPL).as_posix()].append(line)
    return found


def _trace_backward() -> None:
    """Let the threads that autograd starts be traced, as those of Python are."""
    names = [path.relative_to(IMPL.parent).with_suffix("") for path in IMPL.rglob("*.py")]
    modules = [".".join(name.parts).removesuffix(".__init__") for name in names]
    for name in modules:
        importlib.import_module(name)
    for kind in Function.__subclasses__():
        if kind.__module__ in modules:
            kind.backward = staticmethod(_traced(kind.backward))  # type: ignore[method-assign]


def _traced(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def traced(*args: Any) -> Any:
        if sys.gettrace() is None:
            sys.settrace(threading.gettrace())
        return function(*args)

    return traced
