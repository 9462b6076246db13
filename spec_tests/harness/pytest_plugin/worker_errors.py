"""Reports usage errors that pytest-xdist's workers raise at collection.

If a worker raises an error at collection, pytest-xdist shows only a failed assertion. Here a
worker with a usage error collects no tests and sends the text of the error to the controller. The
controller prints the text.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

__all__ = ["sent_to_controller"]

_KEY = "usage_error"
_ERROR = pytest.StashKey[str]()


@contextmanager
def sent_to_controller(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Catch a UsageError in a worker and send it to the controller."""
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
    """Store the usage error of a worker."""
    error = getattr(node, "workeroutput", {}).get(_KEY)
    if error is not None:
        node.config.stash[_ERROR] = error


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Set the exit status of a usage error if a worker has sent one."""
    if _ERROR in session.config.stash:
        session.exitstatus = pytest.ExitCode.USAGE_ERROR


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print the usage error of a worker."""
    if _ERROR in config.stash:
        terminalreporter.write_line(f"ERROR: {config.stash[_ERROR]}")
