"""The garbage collector during a run of tests. Benchmarks run with Python's own settings."""

import gc
from collections.abc import Generator

import pytest

__all__ = ["pytest_collection"]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect the tests without the garbage collector, which then ignores what was imported.

    Otherwise the start and the end of each process take a second more.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
