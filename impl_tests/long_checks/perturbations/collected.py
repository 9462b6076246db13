"""A pytest session that collects tests once; jobs then run them in forked processes.

The process that collects uses no device and does not import a target, so that it may fork, and
each fork can import its own target.
"""

import faulthandler
import gc
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol

from spec_tests.machine import clauses

_ROOT = Path(__file__).resolve().parents[3]
#: Seconds after which a test counts as hung. With few examples no test takes as long. The time
#: limit of pytest would make each hang cost five minutes.
_SECONDS = 90


class CollectedTests:
    """The tests of a session."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session
        self._items = {item.nodeid: item for item in session.items}

    def of_clause(self, clause: str) -> list[str]:
        """Return the names of the tests of a clause."""
        items = self._items.items()
        return [name for name, item in items if clause in clauses.clauses_of_test(item)]

    def find_capabilities(self) -> None:
        """Find the features that the devices lack. A run looks for them once, in this process."""
        # pytest imports the hooks first, so that it rewrites their assertions.
        from spec_tests.machine.fixtures import capabilities_of

        capabilities_of(self._session.config)

    def run(self, tests: Iterable[str]) -> Iterator[tuple[str, set[str]]]:
        """Run tests in the given order. Print their names, and yield them with the failed clauses.

        A test that makes pytest itself fail fails all its clauses. A test that hangs ends this
        process, which prints the stacks of its threads.
        """
        for name in tests:
            print(name, flush=True)
            faulthandler.dump_traceback_later(_SECONDS, exit=True, file=2)
            item = self._items[name]
            try:
                failed = self._run_test(item)
            except (KeyboardInterrupt, pytest.exit.Exception, Exception) as error:
                print(repr(error))
                failed = {*clauses.clauses_of_test(item)}
            yield name, failed

    def _run_test(self, item: pytest.Item) -> set[str]:
        from spec_tests.machine import verdicts  # Otherwise its assertions are not rewritten.

        item._initrequest()  # type: ignore[attr-defined] # of Function; the test can run again
        # The next item is in another folder, so that only fixtures of the session are kept.
        others = (each for each in self._items.values() if each.path.parent != item.path.parent)
        reports = runtestprotocol(item, log=False, nextitem=next(others, None))
        for report in reports:
            if report.failed:
                print(report.longreprtext, flush=True)
        tests = [test for report in reports for test in verdicts.verdicts_of(report)]
        failed = {test.clause for test in tests if test.fails_run}
        # The test has noticed the perturbation also if another clause is about its facts.
        return failed | {*clauses.clauses_of_test(item)[:1]} if failed else failed


class _Plugin:
    """A pytest plugin that calls a function in place of running the collected tests."""

    def __init__(self, function: Callable[[CollectedTests], None]) -> None:
        self._function = function

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Keep pytest from printing the tests of each file."""
        session.config.option.collectonly = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        gc.freeze()  # pytest collects garbage after each test.
        self._function(CollectedTests(session))
        return True


def call_with_tests(function: Callable[[CollectedTests], None], *options: str) -> int:
    """Collect tests in this process and call ``function`` with them.

    Args:
        function: A function of the tests.
        options: Options and files for pytest.

    Returns:
        The exit status of pytest.
    """
    os.chdir(_ROOT)
    arguments = ["-qq", "-s", "--tb=line", "--disable-warnings", "--accelerator=sim"]
    # Each fork enables the accelerator and imports its own target.
    arguments += ["--collect-only", "-p", "no:cacheprovider", "-p", "no:benchmark"]
    return int(pytest.main([*arguments, *options], plugins=[_Plugin(function)]))
