"""The clauses that ``--clause`` asks for, and the files that can hold their tests.

A file of tests writes out the names of its clauses; `written` looks for them, so that who asks for
one clause need not wait until all files are imported.
"""

from functools import cache
from pathlib import Path

import pytest

from spec_tests.harness.conformance.clauses import Clause

_ASKED = pytest.StashKey[frozenset[str]]()


def keep(config: pytest.Config, known: dict[str, Clause]) -> None:
    """Note what is asked for.

    Raises:
        pytest.UsageError: no clause has one of the names.
    """
    names = config.getoption("--clause")
    unknown = [name for name in names if not any(each.is_below(name) for each in known.values())]
    if unknown:
        raise pytest.UsageError(f"--clause {unknown[0]}: no clause has this name")
    found = {each.id for each in known.values() if any(map(each.is_below, names))}
    config.stash[_ASKED] = frozenset(found)


def clauses(config: pytest.Config) -> frozenset[str]:
    """The clauses asked for; none where all are."""
    return config.stash[_ASKED]


def written(path: Path, names: frozenset[str]) -> frozenset[str]:
    """Those of ``names`` that a file of tests writes out."""
    text = _text(path)
    return frozenset(name for name in names if name in text)


@cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")
