"""Add the options of the suite, the option ``--own-tests``, and fixtures."""

from pathlib import Path

import pytest

pytest_plugins = ["spec_tests.machine.options", "spec_tests.machine.tests.fixtures"]

#: Folders of tests that are neither tests of clauses nor benchmarks.
TEST_FOLDERS = {"tests", "impl_tests"}


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    """Check impl, unless --target names another package."""
    # pytest rewrites the assertions of modules that a conftest has not imported.
    from spec_tests.machine.options import DEFAULT_TARGET

    config.option.target = config.option.target or DEFAULT_TARGET


def pytest_addoption(parser):
    """Add the option that selects the tests of the tools themselves."""
    parser.addoption(
        "--own-tests",
        action="store_true",
        help="run only tests in folders `tests` and in impl_tests: no clauses and no benchmarks; "
        "without the option, a folder `tests` runs only if it is named",
    )


def pytest_ignore_collect(collection_path, config):
    """Leave out folders `tests` or, with --own-tests, the files outside of `TEST_FOLDERS`."""
    own_tests = config.getoption("--own-tests")
    if collection_path.is_dir():
        is_left_out = collection_path.name == "tests" and not own_tests
    else:
        # Not relative to the root of pytest: with --pyargs this is the current folder.
        parts = collection_path.relative_to(Path(__file__).parent).parts
        is_left_out = own_tests and TEST_FOLDERS.isdisjoint(parts)
    return is_left_out or None  # None: pytest decides
