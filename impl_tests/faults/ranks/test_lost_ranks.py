"""The trials with lost ranks: fixed cases, and the verdicts on made-up ends of ranks."""

import pytest

from impl_tests.faults.ranks.cases import draw_case, list_cases
from impl_tests.faults.ranks.processes import RankEnd
from impl_tests.faults.ranks.program import TimeLimits
from impl_tests.faults.ranks.verdicts import judge, judge_case, named_ranks
from impl_tests.samples import run_python

#: A program that prints the verdicts on the ranks of each case. Before the last case it changes
#: impl so that errors name no rank.
PROGRAM = """
from impl.distributed.liveness import LivenessCheck
from impl_tests.faults.ranks.trials import make_limits, prepare, run_cases
from impl_tests.faults.ranks.cases import draw_case

def run(cases):
    for case, findings, log in run_cases(cases, make_limits(4), processes=3):
        print(case.seed, *(finding.verdict for finding in findings), sep=",")

prepare()
cases = [draw_case(seed, 3, raising=-1, store="file", **options) for seed, options in {cases}]
run(cases[:-1])
LivenessCheck.run = lambda self: "a rank has ended"
run(cases[-1:])
"""
CASES = [
    (1, {"where": "forward", "lost": ((1, "raises"),)}),
    (2, {"where": "part", "lost": ((0, "killed"), (2, "os._exit"))}),
    (3, {"where": "mean", "lost": ((2, "sys.exit"),)}),
    # Rank 1 finalizes its interpreter, and must leave the file of the store.
    (132, {"where": "part", "lost": ((1, "raises"),)}),
    (4, {"where": "between", "lost": ((0, "killed"),)}),
]
CASE = draw_case(0, 3, where="forward", lost=((1, "killed"),), raising=-1)
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
    completed = run_python(PROGRAM.format(cases=CASES))
    assert completed.returncode == 0, completed.stderr
    assert sorted(completed.stdout.splitlines()) == [
        "1,named,own error,named",
        "132,named,own error,named",
        "2,own error,named,own error",
        "3,named,named,own error",
        "4,own error,no name,no name",
    ]


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({}, "named"),
        ({"text": "Connection closed by peer (seen from rank 1: )"}, "no name"),
        ({"text": "a collective failed, though all 3 ranks respond"}, "no name"),
        ({"text": "rank 1, 2 of 3 has ended or does not respond"}, "other rank"),
        ({"end_time": 114.0}, "late"),
        ({"error": "", "text": "", "exit_code": 0}, "unnoticed"),
        ({"error": "WrongResultError"}, "wrong result"),
        ({"exit_code": None}, "hang"),
        ({"exit_code": -6}, "crash"),
        ({"is_ready": False}, "not reached"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_an_end_gets_its_verdict(change, verdict):
    assert judge(RankEnd(0, **{**NAMED, **change}), CASE, start=100.0, limit=13.0) == verdict


def test_the_lost_rank_must_end():
    end = RankEnd(1, is_ready=True, fault_time=100.0)
    assert judge(end, CASE, start=100.0, limit=13.0) == "hang"


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("Caught ValueError in rank 2 on device cpu.", {2}),
        ("rank 0, 2 of 3 has ended or does not respond (seen from rank 1: x)", {0, 2}),
        ("the process that hosts the group's store, usually rank 0, has ended", {0}),
        ("Connection reset by peer", set()),
    ],
)
def test_names_are_read_from_the_text(text, ranks):
    assert named_ranks(text) == ranks


def test_each_end_of_a_case_has_a_finding():
    ends = [RankEnd(0, **{**NAMED, "text": "closed"}), RankEnd(1, True, 100.0, exit_code=-9)]
    findings = judge_case(CASE, ends, TimeLimits(4, 13, 23))
    assert [finding.verdict for finding in findings] == ["no name", "own error"]
    assert "rank 0 after 5.0 s: RuntimeError: closed" in findings[0].detail


def test_each_case_of_the_list_is_repeated_by_its_seed():
    for case in list_cases(5, 3):
        again = draw_case(
            case.seed, 3, where=case.where, lost=case.lost, raising=-1, store=case.store
        )
        assert again == case
