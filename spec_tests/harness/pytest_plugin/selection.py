"""Selects collected tests, and finds tests that only compare with torch.nn.parallel."""

from pathlib import Path

import pytest

from spec_tests.harness.conformance import clauses

__all__ = ["clauses_judged_without_reference", "deselect", "needs_reference", "resumed_file"]


def clauses_judged_without_reference(items: list[pytest.Item]) -> set[str]:
    """Return the clauses with a test that does not need torch.nn.parallel."""
    return {
        name
        for item in items
        if not needs_reference(item)
        for name in clauses.clauses_of_test(item)
    }


def resumed_file(config: pytest.Config) -> Path:
    """Return the file of verdicts that ``--resume`` continues.

    Raises:
        pytest.UsageError: ``--verdicts`` is not given.
    """
    verdicts_file = config.getoption("--verdicts")
    if verdicts_file is None:
        raise pytest.UsageError("--resume needs the file of --verdicts")
    return Path(verdicts_file)


def deselect(config: pytest.Config, items: list[pytest.Item], unwanted: list[pytest.Item]) -> None:
    """Remove the ``unwanted`` tests from ``items`` and report them to pytest."""
    config.hook.pytest_deselected(items=unwanted)
    without = set(unwanted)
    items[:] = [item for item in items if item not in without]


def needs_reference(item: pytest.Item) -> bool:
    """Return whether a test compares only with torch.nn.parallel (fixture ``reference``).

    A test with the fixture ``baselines`` also compares with the oracle.
    """
    return "reference" in getattr(item, "fixturenames", ())
