"""All changes to impl: each mutation operator, applied wherever it can be applied."""

import ast
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from impl_tests.helpers.collected import ROOT
from impl_tests.weekly.mutation.operators import ORDERING, find_edits, replaced

__all__ = ["IMPL", "Change", "find_changes", "list_sources"]

IMPL = ROOT / "impl"
#: Classes of syntax-tree nodes that define a function or a class.
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
#: The operators of which all changes delete an order of work on the devices.
_ORDERING_OPERATORS = ("unwrap call", "make non-blocking")
#: Matches a decorator, or a statement that only calls a function, if it orders work.
_ORDERING = re.compile(rf"@?([^=]*\.)?({'|'.join(ORDERING)})\b")


@dataclass(frozen=True)
class Change:
    """impl with one small change.

    Args:
        file: The changed file, relative to the folder of impl.
        place: The qualified name of the changed function or class; empty at module level.
        line: The number of the first line of the changed node.
        operator: The name of the mutation operator.
        before: The changed lines of the node before the change, joined by spaces.
        after: The changed lines of the node after the change, joined by spaces.
        tree: The syntax tree of the file.
        node: The changed node.
        new: The node in its place.
        nth: The position of this change, from 1, among the changes with equal ``place``,
            ``before`` and ``after``.
    """

    file: str
    place: str
    line: int
    operator: str
    before: str
    after: str
    tree: ast.Module
    node: ast.AST
    new: ast.AST
    nth: int = 1

    @property
    def name(self) -> str:
        """A unique name, without line numbers: edits of other functions do not change it."""
        suffix = f" [{self.nth}]" if self.nth > 1 else ""
        return f"{self.file} {self.place}: {self.before} -> {self.after}{suffix}"

    @property
    def text(self) -> str:
        """The whole file after the change."""
        text = ast.unparse(ast.fix_missing_locations(replaced(self.tree, self.node, self.new)))
        replaced(self.tree, self.new, self.node)
        return text

    @property
    def is_ordering(self) -> bool:
        """Whether the change deletes a wait, a record of a stream or a switch of streams."""
        is_dropped = self.operator in ("drop statement", "drop decorator")
        is_call = is_dropped and _ORDERING.match(self.before) is not None
        return is_call or self.operator in _ORDERING_OPERATORS

    def write(self, folder: Path) -> None:
        """Write a copy of impl with the change into ``folder``."""
        package = folder / IMPL.name
        shutil.copytree(IMPL, package, ignore=shutil.ignore_patterns("__pycache__"))
        (package / self.file).write_text(self.text, encoding="utf-8")


def find_changes(files: tuple[str, ...] = ()) -> dict[str, Change]:
    """Return all changes to files of impl, keyed by name. No change affects a docstring.

    Args:
        files: The files; by default all except those of ``impl.distributed``. Each rank of
            ``impl.distributed`` runs in its own process, where coverage records no lines.

    Raises:
        FileNotFoundError: impl does not have one of the files.
    """
    paths = [IMPL / name for name in files] or list_sources()
    return {change.name: change for path in paths for change in _changes_of_file(path)}


def list_sources() -> list[Path]:
    """Return the files of impl, without those of ``impl.distributed``."""
    return sorted(path for path in IMPL.rglob("*.py") if path.parent.name != "distributed")


def _changes_of_file(path: Path) -> Iterator[Change]:
    tree, file = ast.parse(path.read_text(encoding="utf-8")), path.relative_to(IMPL).as_posix()
    places = {node: (place, line) for node, place, line in _places(tree)}
    count: Counter[tuple[str, str, str]] = Counter()
    for operator, node, new in find_edits(tree):
        place, line = places[node]
        before, after = _changed_lines(ast.unparse(node), ast.unparse(new))
        count[place, before, after] += 1
        nth = count[place, before, after]
        yield Change(file, place, line, operator, before, after, tree, node, new, nth)


def _places(parent: ast.AST, place: str = "", line: int = 1) -> Iterator[tuple[ast.AST, str, int]]:
    """Yield each node with the name of the function or class around it, and its line."""
    for node in ast.iter_child_nodes(parent):
        inner = f"{place}.{node.name}".lstrip(".") if isinstance(node, _SCOPES) else place
        first = getattr(node, "lineno", line)
        yield node, inner, first
        yield from _places(node, inner, first)


def _changed_lines(before: str, after: str) -> tuple[str, str]:
    """Return the lines of two texts that differ, joined by spaces."""
    left, right = before.splitlines(), after.splitlines()
    while left and right and left[0] == right[0]:
        del left[0], right[0]
    while left and right and left[-1] == right[-1]:
        del left[-1], right[-1]
    return " ".join(map(str.strip, left)), " ".join(map(str.strip, right))
