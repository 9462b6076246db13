"""The cache of detected changes, each with the test that failed on it.

An interrupted run continues where it stopped. An entry is valid while the changed file and the
test's file keep their text; edits of other modules are not noticed. ``--verdicts`` with a new file
tries every change again.
"""

import hashlib
import json
import os
from collections.abc import Container, Iterable
from pathlib import Path

from impl_tests.mutation.changes import Change

ROOT = Path(__file__).resolve().parents[2]
_FOLDER = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
CACHE = _FOLDER / "torch-parallel-spec" / "detected.jsonl"


def load(
    path: Path, chosen: Iterable[Change], tests: Container[str], *, with_stale: bool = False
) -> dict[Change, str]:
    """Return the test, or other failure, that detected each change in a former run.

    Args:
        path: The cache.
        chosen: The changes to look up.
        tests: The tests of this run. An entry of a test that is gone is ignored.
        with_stale: Include entries whose test file has changed since.
    """
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    entries = {entry["change"]: entry for entry in map(json.loads, lines)}
    found = {}
    for change in chosen:
        entry = entries.get(_hash_change(change))
        if entry is None or ("::" in entry["killer"] and entry["killer"] not in tests):
            continue
        if with_stale or entry["test"] == _hash_test_file(entry["killer"]):
            found[change] = entry["killer"]
    return found


def save(path: Path, change: Change, killer: str) -> None:
    """Append an entry: ``killer`` detected ``change``. A later entry replaces an earlier one."""
    entry = {"change": _hash_change(change), "killer": killer, "test": _hash_test_file(killer)}
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        print(json.dumps(entry), file=file)


def _hash_test_file(killer: str) -> str:
    """Return a digest of the test's file; an empty text for a failure outside of tests."""
    file = ROOT / killer.partition("::")[0]
    return _hash(file.read_bytes()) if "::" in killer and file.is_file() else ""


def _hash_change(change: Change) -> str:
    return _hash(f"{change.file}\n{change.text}".encode())


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]
