"""The folder of the programs that repeat failures."""

import hashlib
import itertools
import re
from pathlib import Path

#: The folder of the programs, below the current one.
FOLDER = Path("repro")
#: The beginning of the last line of a program. The digest of the lines above follows.
_MARK = "# A run replaces this file unless it has changed: "


class Programs:
    """The programs in `FOLDER`. A run replaces those that earlier runs wrote for its clauses.

    A file that a run did not write, or that was changed since then, is never removed.

    Args:
        keep: Whether to keep the programs of earlier runs, because this run resumes one.
    """

    def __init__(self, *, keep: bool = False) -> None:
        self._keep = keep
        self._started: set[str] = set()

    def start(self, clause: str) -> None:
        """Remove the programs that earlier runs wrote for a clause. Only its first call counts."""
        if self._keep or clause in self._started:
            return
        self._started.add(clause)
        name = re.compile(rf"{re.escape(_stem(clause))}(_\d+)?\.py")
        for path in [*FOLDER.glob("*.py")]:
            if name.fullmatch(path.name) and _is_unchanged(path):
                path.unlink()
        if FOLDER.exists() and not any(FOLDER.iterdir()):
            FOLDER.rmdir()

    def write(self, clause: str, text: str) -> str:
        """Write a program of a clause to a new file, and return the command that runs it."""
        FOLDER.mkdir(exist_ok=True)
        stem = _stem(clause)
        names = itertools.chain([stem], (f"{stem}_{number}" for number in itertools.count(2)))
        path = next(path for name in names if not (path := FOLDER / f"{name}.py").exists())
        path.write_text(f"{text}\n{_MARK}{_digest(text)}\n", encoding="utf-8")
        return f"python {path}"


def _stem(clause: str) -> str:
    # pytest explains assertions only in files whose names have no other dot.
    return clause.replace(".", "_")


def _is_unchanged(path: Path) -> bool:
    text, _, digest = path.read_text(encoding="utf-8").rpartition(f"\n{_MARK}")
    return digest.rstrip() == _digest(text)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
