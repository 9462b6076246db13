"""Jobs that run in forked processes: the steps, and the verdicts when the process has ended."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["EndedJob", "Job", "Step"]


@dataclass(frozen=True)
class Step:
    """Tests to run with a perturbation. After the first that fails, no other test runs.

    Args:
        line: The perturbation, or `state.LOGGING` to record calls.
        tests: The node ids of the tests.
        clause: The clause of the tests.
    """

    line: str
    tests: Sequence[str]
    clause: str = ""


@dataclass(frozen=True)
class Job:
    """Steps to run in one process.

    Args:
        steps: The steps.
        functions: The functions to wrap; None for all.
        log: The file to which calls are recorded.
    """

    steps: Sequence[Step]
    functions: Iterable[str] | None
    log: Path | None = None


@dataclass
class EndedJob:
    """A job that has ended.

    Args:
        job: The job.
        verdicts: The number of the step, the test and the verdict of each test that ran.
        status: The exit status of the process; -9 if it hung and was killed.
        output: The end of the text that the process printed.
    """

    job: Job
    verdicts: list[tuple[int, str, str]] = field(default_factory=list)
    status: int = 0
    output: str = ""
