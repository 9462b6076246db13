"""The cache of noticed changes, and of the tests that noticed them.

An interrupted run continues where it stopped. An entry is valid as long as the changed file and
the test's file keep their text; modules that both import are not compared. ``--verdicts`` with a
new file tries every change again.
"""

import hashlib
import json
import os
from collections.abc import Container, Iterable
from pathlib import Path
from typing import Any

from impl_tests.mutation.changes import Change

ROOT = Path(__file__).resolve().parents[2]
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
RECORD = _CACHE / "torch-parallel-spec" / "noticed.json"


def load(path: Path, chosen: Iterable[Change], tests: Container[str]) -> dict[Change, str]:
    """By change, of those chosen, what noticed it in a former run: a test that is still there."""
    record = _read(path)
    valid = {
        killer: line
        for killer, line in record.items()
        if "::" not in killer or (killer in tests and line["test"] == _digest_of(killer))
    }
    return _by_change(valid, chosen)


def load_likely(path: Path, chosen: Iterable[Change], tests: Container[str]) -> dict[Change, str]:
    """The same whether or not a test's file has changed since: who tries anew begins with it."""
    known = {killer: line for killer, line in _read(path).items() if killer in tests}
    return _by_change(known, chosen)


def _by_change(record: dict[str, Any], chosen: Iterable[Change]) -> dict[Change, str]:
    found = {key: killer for killer, line in record.items() for key in line["changes"].split()}
    return {change: found[key] for change in chosen if (key := _key(change)) in found}


def keep(path: Path, change: Change, killer: str) -> None:
    """Put down that ``killer`` noticed a change."""
    record, digest = _read(path), _digest_of(killer)
    line = record.setdefault(killer, {"test": digest, "changes": ""})
    if line["test"] != digest:
        line |= {"test": digest, "changes": ""}
    line["changes"] = " ".join(sorted({*line["changes"].split(), _key(change)}))
    _write(path, record)


def forget_all_but(path: Path, changes: Iterable[Change]) -> None:
    """Take out of the record what is about none of these changes."""
    keys = {*map(_key, changes)}
    record = _read(path)
    for line in record.values():
        line["changes"] = " ".join(key for key in line["changes"].split() if key in keys)
    _write(path, {killer: line for killer, line in record.items() if line["changes"]})


def _read(path: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return record


def _write(path: Path, record: dict[str, Any]) -> None:
    """A line for each test, so that two records can be compared; whole, or not at all."""
    lines = [f"{json.dumps(killer)}: {json.dumps(record[killer])}" for killer in sorted(record)]
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = path.with_suffix(".new")
    whole.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    whole.replace(path)


def _digest_of(killer: str) -> str:
    """What the file of a test holds, in short; nothing for what is no test."""
    file = ROOT / killer.partition("::")[0]
    return _short(file.read_bytes()) if "::" in killer and file.is_file() else ""


def _key(change: Change) -> str:
    return _short(f"{change.file}\n{change.text}".encode())


def _short(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]
