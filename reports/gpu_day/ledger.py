"""Which steps are over: one line a step in ``steps.jsonl``, written when it ends."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

__all__ = ["Entry", "Ledger"]


@dataclass(frozen=True)
class Entry:
    """What came of a step, or of a part of it.

    Args:
        step: Its name.
        status: ``ended``; ``cut`` by the limit and to be resumed; ``over`` its limit and given
            up; ``not-run``, for the reason that ``tail`` gives; ``again`` where somebody asked for
            another try.
        code: Its exit status, if it ended.
        seconds: How long it took.
        tail: The end of its output.
    """

    step: str
    status: str
    code: int | None = None
    seconds: float = 0.0
    tail: str = ""


class Ledger:
    """The entries of all calls, in a file."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def add(self, entry: Entry) -> None:
        """Write ``entry`` down."""
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(entry)) + "\n")

    def entries(self) -> Iterator[Entry]:
        """What was written, in order."""
        if self._file.exists():
            for line in self._file.read_text(encoding="utf-8").splitlines():
                yield Entry(**json.loads(line))

    def is_over(self, step: str) -> bool:
        """Whether there is nothing left to do for ``step``."""
        mine = [each.status for each in self.entries() if each.step == step]
        return bool(mine) and mine[-1] not in ("cut", "again")
