"""The verdicts on the ends of the ranks.

Each rank that is not lost must raise an error within the time limit, and the error must name a
lost rank.
"""

import re

from impl_tests.weekly.fault_injection.findings import Finding

from .lost_ranks import LostRanks
from .processes import Rank, run_case
from .rank import INJECTED

__all__ = ["run_ranks"]

#: Seconds from the last fault to the errors of the other ranks. A collective may take 4 seconds.
#: The ranks look once a second whether a collective has failed, and wait 5 seconds for the other
#: ranks. 3 seconds are added for a busy machine.
_ERROR_LIMIT = 4.0 + 1.0 + 5.0 + 3.0
#: The exit statuses that are not a crash. `run_rank` ends with 0, or with 1 after an error. The
#: fault "os._exit" ends the process with 3.
_STATUSES = (0, 1, 3)
_NAMES = (
    re.compile(r"rank ([\d, ]+) of \d+ has ended"),
    re.compile(r"\bin rank (\d+)\b"),
    re.compile(r"usually rank (0), has ended"),
)


def run_ranks(case: LostRanks) -> list[Finding]:
    """Run the ranks of a case; return a finding for each rank."""
    ranks = run_case(case)
    start = max((rank.fault_time for rank in ranks if rank.fault_time is not None), default=None)
    return [Finding(_judge(r, case, start), case.kind, _describe(r, start)) for r in ranks]


def _describe(rank: Rank, start: float | None) -> str:
    seconds = 0.0 if start is None or rank.end_time is None else rank.end_time - start
    text = f"rank {rank.number} after {seconds:.1f} s: {rank.error}: {rank.text}"
    return f"{text} (exit status {rank.exit_code})"


def _judge(rank: Rank, case: LostRanks, start: float | None) -> str:
    """Return the verdict on the end of one rank; ``start`` is the time of the last fault."""
    is_lost = rank.number in dict(case.lost) and rank.fault_time is not None
    if start is None or not rank.is_ready:
        return "not reached"
    if rank.exit_code is None:
        return "hang"
    if is_lost and dict(case.lost)[rank.number] == "killed":
        return "own error"
    if rank.exit_code not in _STATUSES:
        return "crash"
    if rank.error == "AssertionError":
        return "wrong result"
    if is_lost:
        return "unnoticed" if rank.end_time is not None and not rank.error else "own error"
    return _judge_error(rank, case, start)


def _judge_error(rank: Rank, case: LostRanks, start: float) -> str:
    """Return the verdict on the error of a rank that is not lost."""
    if not rank.error or rank.end_time is None:
        return "unnoticed"
    if rank.end_time - start > _ERROR_LIMIT:
        return "late"
    if rank.number == case.raising and rank.text == INJECTED:
        return "own error"
    names = _named_ranks(rank.text)
    if not names and "fails" in dict(case.lost).values() and "ranks respond" in rank.text:
        return "all respond"
    if not names:
        return "no name"
    return "named" if names <= case.culprits else "other rank"


def _named_ranks(text: str) -> set[int]:
    """Return the ranks that the text of an error reports as lost or as failed."""
    text = text.partition(" (seen from rank ")[0]
    lists = [match for pattern in _NAMES for match in pattern.findall(text)]
    return {int(rank) for ranks in lists for rank in ranks.split(",")}
