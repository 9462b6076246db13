"""All changes to impl: each mutation operator, applied wherever it can be applied."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from impl_tests.changed_copy import IMPL, write_copy
from impl_tests.mutation.operators import (
    ORDERING,
    Edit,
    apply_edit,
    find_edits,
    replaced_text,
)

__all__ = ["Change", "find_changes", "list_sources", "remove_locks"]

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
        line: The number of the first changed line.
        operator: The name of the mutation operator.
        before: The changed lines before the change, joined by spaces.
        after: The changed lines after the change, joined by spaces.
        text: The whole file after the change.
        nth: The position of this change, from 1, among the changes with equal ``place``,
            ``before`` and ``after``.
    """

    file: str
    place: str
    line: int
    operator: str
    before: str
    after: str
    text: str
    nth: int = 1

    @property
    def name(self) -> str:
        """A unique name, without line numbers: edits of other functions do not change it."""
        suffix = f" [{self.nth}]" if self.nth > 1 else ""
        return f"{self.file} {self.place}: {self.before} -> {self.after}{suffix}"

    @property
    def is_ordering(self) -> bool:
        """Whether the change deletes a wait, a record of a stream or a switch of streams."""
        is_dropped = self.operator in ("drop statement", "drop decorator")
        is_call = is_dropped and _ORDERING.match(self.before) is not None
        return is_call or self.operator in _ORDERING_OPERATORS

    def write(self, folder: Path) -> None:
        """Write the changed impl into ``folder``."""
        write_copy(folder / IMPL.name, self.file, self.text)


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
    code = path.read_text(encoding="utf-8")
    file = path.relative_to(IMPL).as_posix()
    scope_names = _scope_names_by_line(ast.parse(code))
    count: Counter[tuple[str, str, str]] = Counter()
    texts: set[str] = set()
    for operator, edit in find_edits(code):
        text = apply_edit(code, edit)
        if text == code or text in texts:
            continue
        texts.add(text)
        place = scope_names.get(edit.start[0], "")
        key = place, *_changed_lines(code, text, edit)
        count[key] += 1
        yield Change(file, place, edit.start[0], operator, *key[1:], text, count[key])


def _changed_lines(code: str, changed: str, edit: Edit) -> tuple[str, str]:
    """Return the lines of an edit before and after it, each joined by spaces."""
    first, last = edit.start[0] - 1, edit.end[0]
    before, after = code.splitlines(), changed.splitlines()
    end = last + len(after) - len(before)
    return _on_one_line(before[first:last]), _on_one_line(after[first:end])


def _on_one_line(lines: list[str]) -> str:
    return " ".join(line.strip() for line in lines if line.strip())


def _scope_names_by_line(tree: ast.AST, prefix: str = "") -> dict[int, str]:
    """Return, for each line number, the name of the innermost function or class around it."""
    scope_names: dict[int, str] = {}
    for node in ast.iter_child_nodes(tree):
        name = f"{prefix}{node.name}" if isinstance(node, _SCOPES) else prefix[:-1]
        if isinstance(node, _SCOPES):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            last = node.end_lineno or node.lineno
            scope_names |= dict.fromkeys(range(first, last + 1), name)
        scope_names |= _scope_names_by_line(node, f"{name}." if name else "")
    return scope_names


def remove_locks(code: str) -> str:
    """Return ``code`` whose ``with`` statements acquire no lock, if they acquire only a lock."""
    edits = [edit for _, edit in find_edits(code) if edit.text == "if True"]
    for edit in sorted(edits, reverse=True):
        if replaced_text(code, edit).endswith("lock"):
            code = apply_edit(code, edit)
    return code
