"""Selection of collected tests, and those that compare with torch.nn.parallel alone."""

from pathlib import Path

import pytest

from spec_tests.harness.conformance import clauses

__all__ = ["deselect", "judged_without_reference", "needs_reference", "resumed_file"]


def judged_without_reference(items: list[pytest.Item]) -> set[str]:
    """Return the clauses with a test that does not need torch.nn.parallel."""
    return {name for item in items if not needs_reference(item) for name in clauses.of(item)}


def resumed_file(config: pytest.Config) -> Path:
    """Return the file that ``--resume`` goes on with.

    Raises:
        pytest.UsageError: ``--verdicts`` names none.
    """
    found = config.getoption("--verdicts")
    if found is None:
        raise pytest.UsageError("--resume needs the file of --verdicts")
    return Path(found)


def deselect(config: pytest.Config, items: list[pytest.Item], dropped: list[pytest.Item]) -> None:
    """Deselect ``dropped``."""
    config.hook.pytest_deselected(items=dropped)
    without = set(dropped)
    items[:] = [item for item in items if item not in without]


def needs_reference(item: pytest.Item) -> bool:
    """Whether a test compares with torch.nn.parallel alone: it uses that fixture.

    The fixture ``answers`` compares with the oracle, too.
    """
    return "reference" in getattr(item, "fixturenames", ())
