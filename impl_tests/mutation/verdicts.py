"""A file of what was noticed: a run that is cut off, or cut short, goes on from there.

A line is kept for each change that a test noticed. It holds as long as the changed file's text
does; who changes a test, or another file that matters, begins a new one.
"""

import hashlib
import json
from collections.abc import Container, Iterable
from pathlib import Path

from impl_tests.mutation.changes import Change


def load(path: Path | None, chosen: Iterable[Change], tests: Container[str]) -> dict[Change, str]:
    """By change, of those chosen, what noticed it in a former run: a test that is still there."""
    if path is None or not path.exists():
        return {}
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    killers = {line["text"]: str(line["killer"]) for line in lines}
    killers = {key: each for key, each in killers.items() if "::" not in each or each in tests}
    return {change: killers[key] for change in chosen if (key := _key(change)) in killers}


def keep(path: Path | None, change: Change, killer: str | None) -> None:
    """Add a line to the file, if there is one, for a change that was noticed."""
    if path is not None and killer is not None:
        line = {"change": change.name, "killer": killer, "text": _key(change)}
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def _key(change: Change) -> str:
    return hashlib.sha256(f"{change.file}\n{change.text}".encode()).hexdigest()
