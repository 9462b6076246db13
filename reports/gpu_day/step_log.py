"""The log of the steps, ``steps.jsonl``: one line for each process of a step."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

__all__ = ["StepLog", "StepResult"]


@dataclass(frozen=True)
class StepResult:
    """The result of one process of a step.

    Args:
        step: The step's name.
        status: ``ended``: the process ended by itself. ``interrupted``: it was killed at its time
            limit after some progress, so a later call resumes it. ``timed-out``: it was killed
            without progress. ``not-run``: ``tail`` has the reason. ``again``: no process was
            run; the user asked to repeat the step.
        code: The exit status; None if the process did not end by itself.
        seconds: The seconds that the process ran.
        tail: The end of the output.
    """

    step: str
    status: str
    code: int | None = None
    seconds: float = 0.0
    tail: str = ""


class StepLog:
    """The results of all steps, over repeated runs of the command, in one file."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def add(self, result: StepResult) -> None:
        """Append ``result`` to the file."""
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(result)) + "\n")

    def results(self) -> Iterator[StepResult]:
        """Yield all results, oldest first."""
        if self._file.exists():
            for line in self._file.read_text(encoding="utf-8").splitlines():
                yield StepResult(**json.loads(line))

    def is_done(self, step: str) -> bool:
        """Return whether ``step`` needs no further run."""
        statuses = [each.status for each in self.results() if each.step == step]
        return bool(statuses) and statuses[-1] not in ("interrupted", "again")
