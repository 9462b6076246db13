"""The trials with lost ranks: fixed cases, and the verdicts on made-up ends of ranks."""

import pytest

from impl_tests.faults.ranks.cases import Case
from impl_tests.faults.ranks.processes import RankEnd
from impl_tests.faults.ranks.program import TimeLimits
from impl_tests.faults.ranks.verdicts import judge_case
from spec_tests.harness.environment.scripts import run_program

#: A program that prints the verdicts on the ranks of each case. Before the last case it changes
#: impl so that errors name no rank.
PROGRAM = """
from impl.distributed.liveness import LivenessCheck
from impl_tests.faults.ranks.__main__ import prepare, run_cases
from impl_tests.faults.ranks.cases import Case

def run(cases):
    for case, findings, log in run_cases(cases, processes=3):
        print(case.seed, *(finding.verdict for finding in findings), sep=",")

prepare()
cases = {cases}
run(cases[:-1])
LivenessCheck.run = lambda self: "a rank has ended"
run(cases[-1:])
"""
CASES = [
    Case(1, 3, "in forward", ((1, "raises"),), gather_output=True),
    Case(2, 3, "in part", ((0, "killed"), (2, "os._exit"))),
    Case(3, 3, "mean", ((2, "sys.exit"),)),
    # Rank 1 finalizes its interpreter, and must leave the file of the store.
    Case(4, 3, "in part", ((1, "raises"),), is_finalized=True),
    Case(5, 3, "backward", ((1, "stays away"),), is_begun=True, draw=1, store="rank 0"),
    Case(6, 3, "between", ((0, "killed"),), gather_output=True),
]
CASE = Case(0, 3, "in forward", ((1, "killed"),))
LIMITS = TimeLimits(4, 13, 23)
#: The end of the lost rank.
LOST = RankEnd(1, is_ready=True, fault_time=100.0, exit_code=-9)
#: Fields of a `RankEnd` of rank 0 that has the verdict "named" in ``CASE``.
NAMED = {
    "is_ready": True,
    "error": "RuntimeError",
    "text": "rank 1 of 3 has ended or does not respond (seen from rank 0: closed)",
    "end_time": 105.0,
    "exit_code": 1,
}


@pytest.mark.machinery
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


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({}, "named"),
        ({"text": "Caught ValueError in rank 1 on device cpu."}, "named"),
        ({"text": "Connection closed by peer (seen from rank 1: )"}, "no name"),
        ({"text": "a collective failed, though all 3 ranks respond"}, "no name"),
        ({"text": "rank 1, 2 of 3 has ended or does not respond"}, "other rank"),
        ({"text": "the process with the store, usually rank 0, has ended"}, "other rank"),
        ({"end_time": 114.0}, "late"),
        ({"error": "", "text": "", "exit_code": 0}, "unnoticed"),
        ({"error": "AssertionError"}, "wrong result"),
        ({"exit_code": None}, "hang"),
        ({"exit_code": -6}, "crash"),
        ({"is_ready": False}, "not reached"),
    ],
    ids=str,
)
def test_an_end_gets_its_verdict(change, verdict):
    findings = judge_case(CASE, [RankEnd(0, **{**NAMED, **change}), LOST], LIMITS)
    assert [finding.verdict for finding in findings] == [verdict, "own error"]


def test_a_finding_has_the_error_and_its_time():
    finding = judge_case(CASE, [RankEnd(0, **{**NAMED, "text": "closed"}), LOST], LIMITS)[0]
    assert "rank 0 after 5.0 s: RuntimeError: closed" in finding.detail


def test_the_lost_rank_must_end():
    lost = RankEnd(1, is_ready=True, fault_time=100.0)
    assert judge_case(CASE, [lost], LIMITS)[0].verdict == "hang"
