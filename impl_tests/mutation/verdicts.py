"""The detected changes of former runs, each with the test that failed on it.

A run reads the verdicts in ``detected.json``, which is in the repository, and in a cache on this
machine, and does not try these changes again. An interrupted run can therefore be continued. Each
line of the cache is an entry: a change and a test. An entry is valid until the code of the changed
file or of the test's file is edited; edits of comments, docstrings and other files do not matter.
To try every change again, pass a new file to ``--verdicts``.
"""

import ast
import functools
import hashlib
import json
import os
from collections.abc import Container, Iterable
from pathlib import Path
from typing import Any

from impl_tests.mutants import IMPL
from impl_tests.mutation.changes import Change

ROOT = Path(__file__).resolve().parents[2]
_FOLDER = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
CACHE = _FOLDER / "torch-parallel-spec" / "detected.jsonl"
#: A JSON file: test -> the hash of its file, and the hashes of the changes that it detected.
_REPOSITORY = Path(__file__).with_name("detected.json")
#: Nodes of the syntax tree that may have a docstring.
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def load(
    path: Path,
    selected: Iterable[Change],
    tests: Container[str] | None,
    *,
    with_stale: bool = False,
) -> dict[Change, str]:
    """Return, for each change that a former run detected, the test or import that failed.

    Args:
        path: The file with the cache. If it is `CACHE`, also read the verdicts in the repository.
        selected: The changes to look up.
        tests: The tests of this run. Entries of other tests are ignored. None stands for all
            tests.
        with_stale: Whether to include entries whose test file was edited later.
    """
    entries = _read_repository() if path == CACHE else {}
    lines = _read(path).splitlines() if path.exists() else []
    entries |= {entry["change"]: entry for entry in map(json.loads, lines)}
    found = {}
    for change in selected:
        entry = entries.get(_hash_change(change))
        if entry is None:
            continue
        if tests is not None and "::" in entry["killer"] and entry["killer"] not in tests:
            continue
        if with_stale or entry["test"] == _hash_test_file(entry["killer"]):
            found[change] = entry["killer"]
    return found


def write_to_repository(all_changes: Iterable[Change]) -> int:
    """Write the valid verdicts to ``detected.json``; return their number."""
    found = load(CACHE, all_changes, None)
    tables: dict[str, dict[str, Any]] = {}
    for change, killer in found.items():
        table = tables.setdefault(killer, {"test": _hash_test_file(killer), "changes": []})
        table["changes"].append(_hash_change(change))
    for table in tables.values():
        table["changes"].sort()
    rows = (f"{json.dumps(killer)}: {json.dumps(tables[killer])}" for killer in sorted(tables))
    _REPOSITORY.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")
    return len(found)


def _read_repository() -> dict[str, dict[str, str]]:
    """Return the entries of ``detected.json``, by the hash of the change."""
    tables = json.loads(_read(_REPOSITORY)) if _REPOSITORY.exists() else {}
    return {
        change: {"change": change, "killer": killer, "test": table["test"]}
        for killer, table in tables.items()
        for change in table["changes"]
    }


def save(path: Path, change: Change, killer: str) -> None:
    """Append an entry to the cache. The last entry of a change replaces the earlier ones."""
    entry = {"change": _hash_change(change), "killer": killer, "test": _hash_test_file(killer)}
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        print(json.dumps(entry), file=file)


def _hash_test_file(killer: str) -> str:
    """Return a hash of the file of the test ``killer``; an empty text if the import failed."""
    file = ROOT / killer.partition("::")[0]
    return _hash_code(_read(file)) if "::" in killer and file.is_file() else ""


def _hash_change(change: Change) -> str:
    return _hash(f"{change.name}\n{_hash_code(_read(IMPL / change.file))}")


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@functools.cache
def _hash_code(code: str) -> str:
    """Return a hash of the syntax tree of ``code`` without docstrings."""
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
    return _hash(ast.dump(tree))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
