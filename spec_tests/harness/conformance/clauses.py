"""The specification as data: every clause, by id.

``python -m spec_tests.harness.conformance.clauses`` prints it by chapter.
"""

import hashlib
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

import pytest

SOURCE = Path(__file__).parents[2] / "clauses.toml"
#: The comparison of reference, C++ front end and impl, with which the page ends.
SYSTEMS = SOURCE.parent / "cpp_front_end" / "SYSTEMS.md"
BASES = ("documented", "observed", "law")
_Test = TypeVar("_Test", bound=Callable[..., Any])


@dataclass(frozen=True)
class Clause:
    """A statement of the specification.

    Args:
        id: Its name; the chapter comes first: ``comm.scatter.slices``.
        says: The statement: one sentence in the present tense.
        basis: Its evidence: documented, observed (on the reference) or a law (a relation).
        source: The page or public thread, if any.
    """

    id: str
    says: str
    basis: str
    source: str = ""

    @property
    def chapter(self) -> str:
        """The first word of the id."""
        return self.id.split(".", 1)[0]

    def is_below(self, name: str) -> bool:
        """Whether ``name`` is this clause, its chapter or a part of the chapter."""
        return f"{self.id}.".startswith(f"{name}.")

    def __post_init__(self) -> None:
        if self.basis not in BASES:
            raise ValueError(f"clause {self.id}: basis {self.basis!r} is none of {BASES}")


def clause(name: str) -> Callable[[_Test], _Test]:
    """Mark a test with the clause that it checks."""
    return pytest.mark.clause(name)


def of(item: pytest.Item) -> list[str]:
    """Return the clauses that a test names."""
    return [name for marker in item.iter_markers("clause") for name in marker.args]


def load(source: Path = SOURCE) -> dict[str, Clause]:
    """Return all clauses by id, in the order of the file."""
    return {found.id: found for found in _parsed(source.read_text(encoding="utf-8"))}


def suite_version(names: Iterable[str]) -> str:
    """Return the number of clauses and a hash of their names: ``587 clauses, 1f3a9c2``."""
    ordered = sorted(names)
    digest = hashlib.sha256("\n".join(ordered).encode()).hexdigest()
    return f"{len(ordered)} clauses, {digest[:7]}"


@cache
def _parsed(text: str) -> tuple[Clause, ...]:
    """Return the clauses of a text, cached: the file is large, and sessions collect many times."""
    return tuple(_clauses(tomllib.loads(text), prefix=""))


def _clauses(tables: dict[str, Any], prefix: str) -> Iterator[Clause]:
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise ValueError(f"{prefix}{name}: expected a table of clauses")
        if "says" in table:
            yield Clause(id=prefix + name, **table)
        else:
            yield from _clauses(table, prefix=f"{prefix}{name}.")


def as_text(clauses: dict[str, Clause]) -> str:
    """Return the specification as text, by chapter."""
    lines = []
    for chapter, members in groupby(clauses.values(), key=lambda each: each.chapter):
        lines.append(f"\n{chapter}\n{'=' * len(chapter)}")
        lines += [f"{each.id}\n    {each.says}  [{each.basis}]" for each in members]
    noun = "clause" if len(clauses) == 1 else "clauses"
    return "\n".join([*lines, f"\n{len(clauses)} {noun}"])


def as_markdown(clauses: dict[str, Clause]) -> str:
    """Return the specification as Markdown: a table for each chapter, then `SYSTEMS`."""
    lines = [
        "# The specification of torch.nn.parallel",
        "",
        f"{len(clauses)} clauses, generated from `clauses.toml` by "
        "`python -m spec_tests.harness.conformance.pages --write`. *Observed* is seen on the "
        "reference, *documented* stands in its documentation, a *law* is a relation that must "
        "hold.",
    ]
    for chapter, members in groupby(clauses.values(), key=lambda each: each.chapter):
        lines += [
            "",
            f"## {chapter}",
            "",
            "| clause | says | basis | source |",
            "|---|---|---|---|",
        ]
        lines += [
            f"| `{each.id}` | {_cell(each.says)} | {each.basis} | {each.source} |"
            for each in members
        ]
    return "\n".join([*lines, "", SYSTEMS.read_text(encoding="utf-8")])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    print(as_text(load()))
