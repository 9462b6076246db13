"""What the workers of pytest-xdist refuse at collection, told by the process that people see.

An error at collection ends a worker, and pytest-xdist then shows nothing but a broken assertion of
its own. So a worker that refuses what it has collected has no tests, and hands on why.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

__all__ = ["handed_on"]

_KEY = "refused"
_REFUSED = pytest.StashKey[str]()


@contextmanager
def handed_on(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Take a UsageError out of a worker's collection."""
    try:
        yield
    except pytest.UsageError as error:
        output = getattr(config, "workeroutput", None)
        if output is None:
            raise
        output[_KEY] = str(error)
        items.clear()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Keep what a worker has refused."""
    refused = getattr(node, "workeroutput", {}).get(_KEY)
    if refused is not None:
        node.config.stash[_REFUSED] = refused


def pytest_sessionfinish(session: pytest.Session) -> None:
    """End as a run without workers does."""
    if _REFUSED in session.config.stash:
        session.exitstatus = pytest.ExitCode.USAGE_ERROR


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say what was refused."""
    if _REFUSED in config.stash:
        terminalreporter.write_line(f"ERROR: {config.stash[_REFUSED]}")
