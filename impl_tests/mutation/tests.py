"""The tests that judge a change: those of the suite, and those of impl's private modules.

The process that collects has not imported impl, so that each forked process can import a changed
impl. The tests of impl's private modules import impl: each process collects them itself.
"""

import itertools
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from impl_tests.collected import CHAPTERS, ROOT, call_with_session, run_test

__all__ = ["CollectedTests", "Outcome", "call_with_tests", "import_impl_from"]

#: Patterns of the files that test impl's private modules.
_PRIVATE = ("impl_tests/test_*.py", "impl_tests/extras/test_*.py")
#: Test files that do not run impl in this process: they test changed copies of impl, read its
#: source, or start ranks.
_EXCLUDED = (
    "test_source_rules.py",
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


def _print_now(name: str) -> None:
    print(name, flush=True)


class CollectedTests:
    """The tests of a session. A file that tests private modules is collected at its first use."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session
        self._items = {item.nodeid: item for item in session.items}

    def list_files(self) -> list[str]:
        """Return the files of all tests, as node ids write them."""
        paths = [path for pattern in _PRIVATE for path in ROOT.glob(pattern)]
        private = [path for path in paths if path.name not in _EXCLUDED]
        collected = {_file_of(node_id) for node_id in self._items}
        return sorted(collected | {str(path.relative_to(ROOT)) for path in private})

    def tests_of_file(self, file: str) -> list[str]:
        """Return the node ids of a file's tests."""
        self._collect(file)
        return [node_id for node_id in self._items if _file_of(node_id) == file]

    def run(
        self, node_ids: Iterable[str], before: Callable[[str], object] = _print_now
    ) -> Iterator[Outcome]:
        """Run tests in the given order, and yield their results.

        A test that cannot be collected, or that makes pytest itself fail, counts as failed.

        Args:
            node_ids: The node ids of the tests.
            before: A function to call with the node id of each test before the test starts.
        """
        for node_id, following in itertools.pairwise(itertools.chain(node_ids, [""])):
            item, after = self._find_item(node_id), self._find_item(following)
            before(node_id)
            start = time.monotonic()
            try:
                failed = item is None or any(each.failed for each in run_test(item, after))
            except (KeyboardInterrupt, pytest.exit.Exception, Exception):
                failed = True
            yield Outcome(node_id, failed, time.monotonic() - start)

    def _find_item(self, node_id: str) -> pytest.Item | None:
        if node_id:
            self._collect(_file_of(node_id))
        return self._items.get(node_id)

    def _collect(self, file: str) -> None:
        if not any(_file_of(node_id) == file for node_id in self._items):
            found = self._session.perform_collect([file])
            self._items |= {item.nodeid: item for item in found}


def _file_of(node_id: str) -> str:
    return node_id.partition("::")[0]


def call_with_tests(function: Callable[[CollectedTests], None]) -> int:
    """Collect the conformance tests, and pass them to ``function``; return pytest's status."""
    return call_with_session(
        lambda session: function(CollectedTests(session)),
        "--hypothesis-profile=mutation",
        *CHAPTERS,
    )


def import_impl_from(folder: Path) -> None:
    """Make this process and its child processes import impl from ``folder``."""
    sys.path.insert(0, str(folder))
    os.environ.update(
        PYTHONPATH=os.pathsep.join([str(folder), str(ROOT)]),
        PYTHONSAFEPATH="1",
    )
