"""The trials with lost ranks: fixed cases, and errors that name no rank."""

import pytest

from impl_tests.weekly.fault_injection.ranks.lost_ranks import LostRanks
from spec_tests.machine.subprocesses import run_program

#: A program that prints the verdicts on the ranks of each case. Before the last case it changes
#: impl so that errors name no rank.
PROGRAM = """
from impl.distributed.liveness import LivenessCheck
from impl_tests.helpers import forks
from impl_tests.weekly.fault_injection.__main__ import create_jobs, prepare
from impl_tests.weekly.fault_injection.ranks.lost_ranks import LostRanks

def run(cases):
    for ended in forks.run(create_jobs(cases), processes=3):
        print(ended.job.subject.seed, *(verdict for verdict, *_ in ended.result), sep=",")

prepare()
cases = {cases}
run(cases[:-1])
LivenessCheck.run = lambda self: "a rank has ended"
run(cases[-1:])
"""
CASES = [
    LostRanks(1, "in forward", ((1, "raises"),), gather_output=True),
    LostRanks(2, "in part", ((0, "killed"), (2, "os._exit"))),
    LostRanks(3, "mean", ((2, "sys.exit"),)),
    # Rank 1 finalizes its interpreter, and must leave the file of the store.
    LostRanks(4, "in part", ((1, "raises"),), is_finalized=True),
    LostRanks(5, "backward", ((1, "stays away"),), is_begun=True, draw=1, store="rank 0"),
    LostRanks(6, "between", ((0, "killed"),), gather_output=True),
]


@pytest.mark.slow
def test_lost_ranks_are_named_and_errors_without_a_name_are_found():
    completed = run_program(PROGRAM.format(cases=CASES))
    assert completed.returncode == 0, completed.stderr
    assert sorted(completed.stdout.splitlines()) == [
        "1,named,own error,named",
        "2,own error,named,own error",
        "3,named,named,own error",
        "4,named,own error,named",
        "5,named,own error,named",
        "6,own error,no name,no name",
    ]
