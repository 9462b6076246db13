"""The clauses that ``--clause`` selects, and the files with their tests.

A test file contains the full ids of its clauses. A run of one clause therefore imports only the
files that contain the id of the clause.
"""

from functools import cache
from pathlib import Path

import pytest

from spec_tests.harness.conformance.clauses import Clause

_SELECTED = pytest.StashKey[frozenset[str]]()


def configure(config: pytest.Config, known_clauses: dict[str, Clause]) -> None:
    """Store the clauses that ``--clause`` selects.

    Args:
        config: The configuration of pytest.
        known_clauses: All clauses by id.

    Raises:
        pytest.UsageError: a value of ``--clause`` is not the beginning of an id.
    """
    names = config.getoption("--clause")
    unknown = [
        name for name in names if not any(each.has_prefix(name) for each in known_clauses.values())
    ]
    if unknown:
        raise pytest.UsageError(f"--clause {unknown[0]}: no clause has this name")
    found = {each.id for each in known_clauses.values() if any(map(each.has_prefix, names))}
    config.stash[_SELECTED] = frozenset(found)


def selected(config: pytest.Config) -> frozenset[str]:
    """Return the ids of the selected clauses; empty without ``--clause``."""
    return config.stash[_SELECTED]


def ids_in(path: Path, ids: frozenset[str]) -> frozenset[str]:
    """Return those clause ids of ``ids`` that the text of a file contains."""
    text = _read_text(path)
    return frozenset(clause_id for clause_id in ids if clause_id in text)


@cache
def _read_text(path: Path) -> str:
    return path.read_text(encoding="utf-8")
