"""Verdicts on trials, and the table that the program prints of them."""

import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from impl_tests.helpers import forks

__all__ = ["GOOD", "Finding", "find", "report"]

#: The verdicts that are not bad: the fault did not occur, the call returned the right
#: result without the refused resource, or its error reports the fault.
GOOD = ("not reached", "right", "reported")


class Finding(NamedTuple):
    """The verdict on one fault, the fault's kind, and what was observed."""

    verdict: str
    kind: str
    detail: str = ""


def report(jobs: Iterable[forks.Job], *, processes: int, exitfirst: bool) -> int:
    """Run trials. Print the bad findings, and a table of all verdicts. Return 1 if one is bad.

    Args:
        jobs: The trials, which have a ``kind``. The text of a trial has the options that repeat
            it. The function of each job returns the findings.
        processes: The number of trials at a time.
        exitfirst: Whether to end after the first trial with a bad verdict.
    """
    start, counts = time.monotonic(), Counter[tuple[str, str]]()
    with suppress(KeyboardInterrupt):  # The table then counts the trials until the interrupt.
        for ended in forks.run(jobs, processes=processes):
            findings = find(ended)
            counts.update((finding.kind, finding.verdict) for finding in findings)
            bad = [finding for finding in findings if finding.verdict not in GOOD]
            for finding in bad:
                print(f"{finding.verdict} ({ended.job.subject})\n  {finding.detail}")
            print(ended.log * bool(bad), end="", flush=True)
            if bad and exitfirst:
                break
    width = max((len(kind) for kind, _ in counts), default=0)
    for (kind, verdict), count in sorted(counts.items()):
        print(f"{count:7}  {kind:{width}}  {verdict}{'' if verdict in GOOD else ' (bad)'}")
    bad_count = sum(count for (_, verdict), count in counts.items() if verdict not in GOOD)
    print(f"{counts.total()} verdicts, {bad_count} bad, {time.monotonic() - start:.0f} s")
    return int(bad_count > 0)


def find(ended: forks.JobResult) -> list[Finding]:
    """Return the findings of a trial that has ended."""
    if ended.result is not None:
        return [Finding(*each) for each in ended.result]
    verdict = "hang" if ended.is_hung else "crash"
    return [Finding(verdict, ended.job.subject.kind, f"exit status {ended.exit_code}")]
