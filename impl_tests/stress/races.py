"""Data races: copies of impl in which the locks of one file do nothing."""

import ast
import sys
from pathlib import Path

from impl_tests.changed_copy import IMPL, write_copy
from impl_tests.mutation.operators import apply_edit, replace_nodes

__all__ = ["find_guarded_files", "remove_locks", "write_race"]

#: The end of the names of locks.
_LOCK = "lock"
#: The name under which the copy of impl can be imported.
_PACKAGE = "impl_without_locks"


def find_guarded_files() -> list[str]:
    """Return the files of impl that hold a lock, relative to the folder of impl."""
    paths = [path for path in IMPL.rglob("*.py") if _find_blocks(path.read_text(encoding="utf-8"))]
    return sorted(path.relative_to(IMPL).as_posix() for path in paths)


def remove_locks(code: str) -> str:
    """Return ``code`` whose ``with`` statements acquire no lock."""
    for block in _find_blocks(code):
        code = apply_edit(code, replace_nodes(block, block.items[0].context_expr, "if True"))
    return code


def write_race(file: str, folder: Path) -> str:
    """Write a copy of impl into ``folder`` and make it importable; return its name.

    Args:
        file: A file of :func:`find_guarded_files`, whose locks the copy does not acquire.
        folder: An empty folder.
    """
    text = (IMPL / file).read_text(encoding="utf-8")
    write_copy(folder / _PACKAGE, file, remove_locks(text))
    sys.path.insert(0, str(folder))
    return _PACKAGE


def _find_blocks(code: str) -> list[ast.With]:
    """Return the ``with`` statements that acquire only a lock, the last one first."""
    blocks = []
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.With(items=[ast.withitem(context_expr=lock)]):
                if ast.unparse(lock).endswith(_LOCK):
                    blocks.append(node)
    return sorted(blocks, key=lambda block: -block.lineno)
