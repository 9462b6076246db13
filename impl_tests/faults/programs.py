"""A test program that injects faults into impl or into a perturbed impl."""

from impl_tests.samples import run_python

__all__ = ["find_bad_lines"]

#: A program that prints a line for each trial with a bad verdict, and ends at the first of the
#: wanted verdicts.
_PROGRAM = """
import tempfile
from pathlib import Path
from impl_tests.faults.target import perturb, prepare
from impl_tests.faults.trial import run_trials
from impl_tests.faults.verdicts import BAD

with tempfile.TemporaryDirectory() as folder:
    name = perturb({perturbation!r}, Path(folder)) if {perturbation!r} else "impl"
    seeds = range({first}, {first} + {count})
    for result in run_trials(prepare(name), ["{kind}"], seeds, processes=1, limit=60):
        bad = [each.verdict for each in result.findings if each.verdict in BAD]
        if bad:
            print(bad[0], result.seed, result.log.splitlines()[0], result.findings)
        if bad and bad[0] == {wanted!r}:
            break
"""


def find_bad_lines(
    kind: str, count: int, perturbation: str = "", *, wanted: str = "", first: int = 0
) -> list[str]:
    """Run trials in a new process. Return a line for each trial with a bad verdict.

    Args:
        kind: The kind of the faults.
        count: The largest number of trials.
        perturbation: The perturbation of impl; an empty text for none.
        wanted: A verdict. The run ends when it occurs.
        first: The seed of the first trial; the others follow.
    """
    program = _PROGRAM.format(
        kind=kind, count=count, perturbation=perturbation, wanted=wanted, first=first
    )
    completed = run_python(program)
    assert completed.returncode == 0, completed.stderr
    return completed.stdout.splitlines()
