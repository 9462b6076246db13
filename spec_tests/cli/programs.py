"""The folder of the programs that repeat failures."""

import hashlib
import itertools
import json
from pathlib import Path

__all__ = ["FOLDER", "Programs"]

#: The folder of the programs, below the current one.
FOLDER = Path("repro")
#: A file in this folder: the clause and the digest of each program that runs have written.
LIST = ".programs.json"


class Programs:
    """The programs in `FOLDER`. A run replaces those that earlier runs wrote for its clauses.

    A file that a run did not write, or that was changed since then, is never removed.

    Args:
        keep: Whether to keep the programs of earlier runs, because this run resumes one.
    """

    def __init__(self, *, keep: bool = False) -> None:
        self._keep = keep
        self._started: set[str] = set()
        self._written = _read_list()

    def start(self, clause: str) -> None:
        """Remove the programs that earlier runs wrote for a clause. Only its first call counts."""
        if self._keep or clause in self._started:
            return
        self._started.add(clause)
        old = [name for name, (owner, _) in self._written.items() if owner == clause]
        for name in old:
            _, digest = self._written.pop(name)
            if _digest(FOLDER / name) == digest:
                (FOLDER / name).unlink()
        if old:
            self._write_list()

    def write(self, clause: str, text: str) -> str:
        """Write a program of a clause to a new file, and return the command that runs it."""
        FOLDER.mkdir(exist_ok=True)
        # pytest explains assertions only in files whose names have no other dot.
        stem = clause.replace(".", "_")
        names = itertools.chain([stem], (f"{stem}_{number}" for number in itertools.count(2)))
        path = next(path for name in names if not (path := FOLDER / f"{name}.py").exists())
        path.write_text(text, encoding="utf-8")
        self._written[path.name] = clause, _digest(path)
        self._write_list()
        return f"python {path}"

    def _write_list(self) -> None:
        if self._written:
            (FOLDER / LIST).write_text(json.dumps(self._written), encoding="utf-8")
            return
        (FOLDER / LIST).unlink(missing_ok=True)
        if not any(FOLDER.iterdir()):
            FOLDER.rmdir()


def _read_list() -> dict[str, tuple[str, str]]:
    """Return clause and digest of each program by name; empty if there is no valid list."""
    try:
        found = json.loads((FOLDER / LIST).read_text(encoding="utf-8"))
        return {Path(name).name: (clause, digest) for name, (clause, digest) in found.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def _digest(path: Path) -> str:
    """Return the digest of a file; empty if it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""
