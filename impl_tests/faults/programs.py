"""A test program that injects faults into impl or into a changed impl."""

from collections.abc import Sequence

from impl_tests.samples import run_python

__all__ = ["PROGRAM", "find_bad_lines"]

#: A program that prints a line for each trial with a bad verdict, and ends at the first of the
#: wanted verdicts.
PROGRAM = """
import contextlib, gc, threading
from impl_tests.faults.target import prepare
from impl_tests.faults.trial import run_trials
from impl_tests.faults.verdicts import BAD

target = prepare("impl")
{change}
for result in run_trials(target, ["{kind}"], range({count}), processes=1, limit={limit}):
    bad = [each.verdict for each in result.findings if each.verdict in BAD]
    if bad:
        print(bad[0], result.seed, result.log.splitlines()[0], result.findings)
    if bad and bad[0] in {wanted}:
        break
"""


def find_bad_lines(kind: str, change: str, count: int, wanted: Sequence[str] = ()) -> list[str]:
    """Run trials in a new process. Return a line for each trial with a bad verdict.

    Args:
        kind: The kind of the faults.
        change: Statements that change impl before the first trial; an empty text for none.
        count: The number of trials; their seeds are 0, 1, ...
        wanted: Verdicts. The run ends at the first of them.
    """
    limit = 5 if "hang" in wanted else 60
    program = PROGRAM.format(kind=kind, change=change, count=count, wanted=wanted, limit=limit)
    completed = run_python(program)
    assert completed.returncode == 0, completed.stderr
    return completed.stdout.splitlines()
