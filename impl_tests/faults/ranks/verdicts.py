"""The verdicts on the ends of ranks."""

import re
from collections.abc import Sequence

from impl_tests.faults.trial import Finding

from .cases import Case
from .processes import RankEnd
from .program import INJECTED, TimeLimits

__all__ = ["BAD_ENDS", "ENDS", "judge_case"]

#: Verdict -> its meaning. A verdict in ``BAD_ENDS`` makes the run fail.
ENDS = {
    "not reached": "the rank did not start, or no fault occurred",
    "named": "the error names lost ranks only, within the time limit",
    "own error": "the rank that raises, exits or returns late ends with an error",
    "all respond": "a collective failed on a live rank, and the error says that all ranks respond",
    "no name": "the error names no rank",
    "other rank": "the error names a rank that was not lost",
    "late": "the error came after the time limit",
    "unnoticed": "the rank ran all steps",
    "wrong result": "a step returned a wrong result",
    "hang": "the process did not end",
    "crash": "a signal ended the process",
}
#: The bad verdicts: all from "no name" on.
BAD_ENDS = tuple(ENDS)[4:]
#: The exit statuses that are not a crash. `run_rank` ends with 0, or with 1 after an error. The
#: fault "os._exit" ends the process with 3.
_STATUSES = (0, 1, 3)
_NAMES = (
    re.compile(r"rank ([\d, ]+) of \d+ has ended"),
    re.compile(r"\bin rank (\d+)\b"),
    re.compile(r"usually rank (0), has ended"),
)


def judge_case(case: Case, ends: Sequence[RankEnd], limits: TimeLimits) -> list[Finding]:
    """Return a finding for each rank of a case. Its kind is how the ranks were lost."""
    start = max((end.fault_time for end in ends if end.fault_time is not None), default=None)
    kind = " and ".join(sorted({how for _, how in case.lost}))
    findings = []
    for end in ends:
        verdict = "not reached" if start is None else _judge(end, case, start, limits.error)
        seconds = 0.0 if start is None or end.end_time is None else end.end_time - start
        detail = f"rank {end.rank} after {seconds:.1f} s: {end.error}: {end.text}"
        findings.append(Finding(verdict, kind, f"{detail} (exit status {end.exit_code})"))
    return findings


def _judge(end: RankEnd, case: Case, start: float, limit: float) -> str:
    """Return the verdict on the end of one rank.

    Args:
        end: The end of the rank.
        case: The case.
        start: The time of the last fault.
        limit: Seconds after ``start`` in which the rank must raise an error.
    """
    is_lost = end.rank in dict(case.lost) and end.fault_time is not None
    if not end.is_ready:
        return "not reached"
    if end.exit_code is None:
        return "hang"
    if is_lost and dict(case.lost)[end.rank] == "killed":
        return "own error"
    if end.exit_code not in _STATUSES:
        return "crash"
    if end.error == "AssertionError":
        return "wrong result"
    if is_lost:
        return "unnoticed" if end.end_time is not None and not end.error else "own error"
    return _judge_error(end, case, start, limit)


def _judge_error(end: RankEnd, case: Case, start: float, limit: float) -> str:
    """Return the verdict on the error of a rank that is not lost."""
    if not end.error or end.end_time is None:
        return "unnoticed"
    if end.end_time - start > limit:
        return "late"
    if end.rank == case.raising and end.text == INJECTED:
        return "own error"
    names = _named_ranks(end.text)
    if not names and "fails" in dict(case.lost).values() and "ranks respond" in end.text:
        return "all respond"
    if not names:
        return "no name"
    return "named" if names <= case.culprits else "other rank"


def _named_ranks(text: str) -> set[int]:
    """Return the ranks that the text of an error reports as lost or as failed."""
    text = text.partition(" (seen from rank ")[0]
    lists = [match for pattern in _NAMES for match in pattern.findall(text)]
    return {int(rank) for ranks in lists for rank in ranks.split(",")}
